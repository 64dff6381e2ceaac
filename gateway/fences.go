package gateway

import (
	"context"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) getFence(ctx context.Context, resource store.Name) (any, error) {
	fence, err := g.backend.Fence(ctx, resource)
	return fenceAnswer(fence), err
}

func fenceAnswer(fence store.Fence) api.Fence {
	return api.Fence{
		Resource: string(fence.Resource), GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence, Policy: policyAnswer(fence.Policy),
	}
}
