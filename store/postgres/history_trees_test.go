package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

var historyOfTrees = historyPlan{
	clients: 6, gateways: 2, together: true, trees: true,
	policies: []store.Policy{
		{Prefix: "tree", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "tree/a", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "tree/a/x", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "tree/b", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
	},
}

// TestHistoryOfTrees checks the same where clients take subtrees and names in them, exclusive or shared, some of them
// in sessions that they end.
func TestHistoryOfTrees(t *testing.T) { testHistories(t, historyOfTrees) }

// historySessions is how many sessions each client has. It also uses those that it has ended.
const historySessions = 4

// openSessions gives each client a session.
func (f *historyFixture) openSessions(t *testing.T, state storetest.Model, clients []*historyClient) storetest.Model {
	t.Helper()
	for _, client := range clients {
		for range historySessions {
			session, err := client.gateway.CreateSession(t.Context(),
				store.SessionRequest{OwnerID: fmt.Sprintf("client-%d", client.id), TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			client.sessions = append(client.sessions, session)
			state = state.WithSession(session)
		}
	}
	return state
}

// vary makes a request one for a shared lease, for the subtree, or in a session.
func (c *historyClient) vary(ctx context.Context, request *store.AcquireRequest) {
	request.Mode, request.Scope = store.Exclusive, store.Node
	if c.oneIn(4) {
		request.Mode = store.Shared
	}
	if c.oneIn(2) {
		request.Scope = store.Subtree
	}
	if c.oneIn(5) {
		session := c.sessions[c.chance.IntN(len(c.sessions))]
		request.SessionID, request.TTL = session.ID, 0
		if c.oneIn(4) {
			c.send(ctx, historyCall{keepAlive: &session.ID})
		}
	}
}

// actionsMax bounds the actions of a holder. One with a shared lease does less.
func (c *historyClient) actionsMax(held *heldLease) int {
	if held.lease.Mode == store.Shared {
		return 3
	}
	return 12
}

// within is a name that the held covers; now and then one that it does not.
func (c *historyClient) within(held *heldLease) store.Name {
	if !c.trees || held.lease.Scope != store.Subtree && !c.oneIn(10) {
		return held.lease.Lock
	}
	name := c.names[c.chance.IntN(len(c.names))]
	if strings.HasPrefix(string(name), string(held.lease.Lock)) || c.oneIn(10) {
		return name
	}
	return held.lease.Lock
}
