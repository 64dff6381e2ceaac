package main

import (
	"context"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

type whoamiCmd struct{ clientFlags }

// Run shows the principal of the credential.
func (c *whoamiCmd) Run(ctx context.Context, con *console) error {
	return answer(ctx, con, c.clientFlags, principalFields,
		func(ctx context.Context, client *lockclient.Client) (api.Principal, error) {
			return admin.New(client).WhoAmI(ctx)
		})
}

func principalFields(principal api.Principal) []field {
	return []field{
		{"principal", principal.Principal},
		{"kind", principal.Kind},
		{"grants", strings.Join(principal.Grants, " ")},
		{"expires_at", optionalClock(principal.ExpiresAt)},
	}
}
