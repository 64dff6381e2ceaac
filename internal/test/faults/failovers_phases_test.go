//go:build linux

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// phaseNames are what a failover by Patroni goes through, in this order.
const phaseNames = "key free → other leader → promoted → standby confirms → first write"

// phases are when a failover reached each phase, as long after the fault.
type phases []time.Duration

func (p phases) String() string {
	var texts []string
	for _, after := range p {
		texts = append(texts, fmt.Sprintf("%.1f", after.Seconds()))
	}
	return strings.Join(texts, " → ")
}

// notePhases notes the phases of the failover from a leader that is about to break, by what the other nodes show.
func (m *measured) notePhases(t *testing.T, former *patroniNode, rest []*patroniNode) {
	t.Helper()
	others := &patroniCluster{nodes: rest}
	var successor *patroniNode
	var acks int
	reached := []func(context.Context) bool{
		func(context.Context) bool {
			members := others.members(t)
			return len(members) > 0 && !slices.ContainsFunc(members, func(member patroniMember) bool {
				return member.Role == "leader" && member.Name == former.name
			})
		},
		func(context.Context) bool {
			successor, _ = others.leader(t)
			return successor != nil
		},
		func(ctx context.Context) bool {
			acks, _ = m.journal.Progress()
			return successor.says(ctx, "select not pg_is_in_recovery()")
		},
		func(ctx context.Context) bool {
			return successor.says(ctx, "select pg_logical_emit_message(true, '', '') is not null") // and commits
		},
		func(context.Context) bool {
			now, _ := m.journal.Progress()
			return now > acks
		},
	}
	m.observe(func(ctx context.Context) {
		begun := time.Now()
		for _, holds := range reached {
			for !holds(ctx) {
				if ctx.Err() != nil {
					return
				}
				time.Sleep(retryPause)
			}
			m.phases = append(m.phases, time.Since(begun))
		}
	})
}

// says reports whether PostgreSQL of the node answers a query, and with true.
func (n *patroniNode) says(ctx context.Context, query string) (yes bool) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, (&patroniCluster{nodes: []*patroniNode{n}}).url("postgres"))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }() // its error is that the server has closed it
	return conn.QueryRow(ctx, query).Scan(&yes) == nil && yes
}
