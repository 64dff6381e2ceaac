package main

import (
	"context"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// policyCmds are the commands below "fencegate policy".
type policyCmds struct {
	Get policyGetCmd `cmd:"" help:"Show the policy that was set on a prefix."`
	Set policySetCmd `cmd:"" help:"Set the policy of a name and all names below it."`
	Rm  policyRmCmd  `cmd:"" help:"Remove a policy: that of the next shorter prefix applies from then on."`
	Ls  policyLsCmd  `cmd:"" help:"List all policies by prefix."`
}

type policyGetCmd struct {
	clientFlags
	Prefix string `arg:"" help:"The name. An empty text: every name."`
}

// Run shows a policy.
func (c *policyGetCmd) Run(ctx context.Context, con *console) error {
	return answer(ctx, con, c.clientFlags, policyFields, func(ctx context.Context, gateway calls) (api.Policy, error) {
		return gateway.Policy(ctx, c.Prefix)
	})
}

type policySetCmd struct {
	clientFlags
	Prefix                string           `arg:"" help:"The name. An empty text: every name."`
	Rule                  string           `help:"strict: a token admits one write without a sequence; same_token: any number." enum:"strict,same_token" default:"strict"`
	Authority             string           `help:"builtin: fencegate issues the tokens; external: another lock service does." enum:"builtin,external" default:"builtin"`
	RequireLeaseID        bool             `help:"Reject writes without the id of their lease."`
	RequireLiveLease      bool             `help:"Reject writes under a lease that has expired, also if it was not replaced."`
	MaxHold               millisecondsFlag `help:"Longest time from the grant of a lease to its end, however often it is renewed, ${limits}. Default: no limit." set:"limits=100ms to 8760h" placeholder:"DURATION"`
	Leases                string           `help:"What keeps the leases: postgres, redis or redlock. Default: the gateway's. FENCEGATE_LEASES, which is for serve, does not set it." enum:",postgres,redis,redlock" default:"" placeholder:"PROVIDER" env:"-"`
	RequirePrincipalOwner bool             `help:"Demand an owner_id that is the caller's principal, or begins with it and a slash."`
}

// Help is shown by "fencegate policy set --help".
func (policySetCmd) Help() string {
	return "Replaces the policy of the prefix: what no flag sets gets its default. docs/concepts.md explains the policies."
}

// Run sets a policy.
func (c *policySetCmd) Run(ctx context.Context, con *console) error {
	request := api.PolicyRequest{
		Rule: c.Rule, Authority: c.Authority, RequireLeaseID: c.RequireLeaseID, RequireLiveLease: c.RequireLiveLease,
		MaxHoldMS: c.MaxHold.ms, Leases: c.Leases, RequirePrincipalOwner: c.RequirePrincipalOwner,
	}
	return answer(ctx, con, c.clientFlags, policyFields, func(ctx context.Context, gateway calls) (api.Policy, error) {
		return gateway.PutPolicy(ctx, c.Prefix, request)
	})
}

func policyFields(policy api.Policy) []field {
	return []field{
		{"prefix", policy.Prefix},
		{"rule", policy.Rule},
		{"authority", policy.Authority},
		{"require_lease_id", strconv.FormatBool(policy.RequireLeaseID)},
		{"require_live_lease", strconv.FormatBool(policy.RequireLiveLease)},
		{"require_principal_owner", strconv.FormatBool(policy.RequirePrincipalOwner)},
		{"max_hold", maxHold(policy)},
		{"leases", policy.Leases},
	}
}

// maxHold is empty where there is no limit.
func maxHold(policy api.Policy) string {
	if policy.MaxHoldMS == 0 {
		return ""
	}
	return (time.Duration(policy.MaxHoldMS) * time.Millisecond).String()
}

type policyRmCmd struct {
	clientFlags
	Prefix string `arg:"" help:"The name. An empty text: every name."`
}

// policyRemoved is the answer of a removal, which the API answers without a body.
type policyRemoved struct {
	Removed bool   `json:"removed"`
	Prefix  string `json:"prefix"`
}

// Run removes a policy.
func (c *policyRmCmd) Run(ctx context.Context, con *console) error {
	fields := func(policyRemoved) []field { return []field{{"removed", c.Prefix}} }
	return answer(ctx, con, c.clientFlags, fields, func(ctx context.Context, gateway calls) (policyRemoved, error) {
		return policyRemoved{Removed: true, Prefix: c.Prefix}, gateway.DeletePolicy(ctx, c.Prefix)
	})
}

type policyLsCmd struct{ clientFlags }

// Run lists policies.
func (c *policyLsCmd) Run(ctx context.Context, con *console) error {
	heading := []string{"PREFIX", "RULE", "AUTHORITY", "LEASE ID", "LIVE LEASE", "PRINCIPAL OWNER", "MAX HOLD", "LEASES"}
	return answerList(ctx, con, c.clientFlags, heading, policyRow,
		func(ctx context.Context, gateway calls) ([]api.Policy, error) {
			all, err := gateway.Policies(ctx)
			return all.Policies, err
		})
}

func policyRow(policy api.Policy) []string {
	required := map[bool]string{true: "required"}
	return []string{
		policy.Prefix, policy.Rule, policy.Authority, required[policy.RequireLeaseID], required[policy.RequireLiveLease],
		required[policy.RequirePrincipalOwner], maxHold(policy), policy.Leases,
	}
}

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
	return answer(ctx, con, c.clientFlags, fenceFields, func(ctx context.Context, gateway calls) (api.Fence, error) {
		return gateway.Fence(ctx, c.Resource)
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
	return answer(ctx, con, c.clientFlags, fenceSetFields, func(ctx context.Context, gateway calls) (api.FenceSet, error) {
		return gateway.SetFence(ctx, c.Resource, request)
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
