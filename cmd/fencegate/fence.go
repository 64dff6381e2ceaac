package main

import (
	"context"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// fenceCmds are the commands below "fencegate fence".
type fenceCmds struct {
	Get fenceGetCmd `cmd:"" help:"Show a fence: its newest token, the last accepted write, and the policy."`
	Set fenceSetCmd `cmd:"" help:"Set the last accepted token, down or up, where another lock service issues the tokens."`
}

type fenceGetCmd struct {
	clientFlags
	Resource string `arg:"" help:"Name of the resource."`
}

// Run shows a fence.
func (c *fenceGetCmd) Run(ctx context.Context, con *console) error {
	return answer(ctx, con, c.clientFlags, fenceFields,
		func(ctx context.Context, client *lockclient.Client) (api.Fence, error) {
			return admin.New(client).Fence(ctx, c.Resource)
		})
}

func fenceFields(fence api.Fence) []field {
	policy := fence.Policy.Rule + ", " + fence.Policy.Authority
	return []field{
		{"resource", fence.Resource},
		{"granted_token", strconv.FormatInt(fence.GrantedToken, 10)},
		{"open", strconv.FormatBool(fence.Open)},
		{"last_token", strconv.FormatInt(fence.LastToken, 10)},
		{"last_sequence", strconv.FormatInt(fence.LastSequence, 10)},
		{"policy", policy},
	}
}

type fenceSetCmd struct {
	clientFlags
	Resource     string `arg:"" help:"Name of the resource."`
	LastToken    int64  `help:"The token that should count as the last accepted one: of the newest holder before the one that should write. 0 admits every token." required:"" placeholder:"TOKEN"`
	LastSequence int64  `help:"Its sequence." default:"0"`
	Reason       string `help:"Why; the gateway logs it." required:"" placeholder:"TEXT"`
}

// Help is shown by "fencegate fence set --help".
func (fenceSetCmd) Help() string {
	return "For administrators, after a token that was too great, or when the other service's numbers have started " +
		"anew. Stop the writers first: any token above the new number is admitted."
}

// Run sets a fence.
func (c *fenceSetCmd) Run(ctx context.Context, con *console) error {
	request := api.FenceRequest{LastToken: &c.LastToken, LastSequence: c.LastSequence, Reason: c.Reason}
	return answer(ctx, con, c.clientFlags, fenceSetFields,
		func(ctx context.Context, client *lockclient.Client) (api.FenceSet, error) {
			return admin.New(client).SetFence(ctx, c.Resource, request)
		})
}

func fenceSetFields(set api.FenceSet) []field {
	number := func(token, sequence int64) string {
		return api.FencingToken{Token: token, Sequence: &sequence}.String()
	}
	return []field{
		{"resource", set.Resource},
		{"last_accepted", number(set.LastToken, set.LastSequence)},
		{"before", number(set.PreviousToken, set.PreviousSequence)},
	}
}
