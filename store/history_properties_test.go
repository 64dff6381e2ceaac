package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyPatience bounds the checker's search. It needs milliseconds where an order exists.
const historyPatience = 20 * time.Second

// historyLease is a lease as the database keeps it.
type historyLease struct {
	Lock      store.Name
	Mode      store.Mode
	Scope     store.Scope
	Token     int64
	ID        uuid.UUID
	RequestID string
	TTLMS     int64
	GrantedAt time.Time
	ExpiresAt time.Time
	EndedAt   *time.Time
}

// end is when the lease stopped being live.
func (l historyLease) end() time.Time {
	if l.EndedAt != nil && l.EndedAt.Before(l.ExpiresAt) {
		return *l.EndedAt
	}
	return l.ExpiresAt
}

func readHistoryLeases(t *testing.T, sql *pgx.Conn, prefix string) []historyLease {
	t.Helper()
	rows, err := sql.Query(t.Context(), `
		select l.lock, l.mode, l.scope, l.fencing_token, l.lease_id, l.request_id, l.ttl_ms, l.granted_at, fence.runs_until(l), l.ended_at
		from fence.leases l where l.lock ^@ ($1 || '/') order by l.lock, l.fencing_token`, prefix)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := pgx.CollectRows(rows, pgx.RowToStructByPos[historyLease])
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// resolve finds the leases that were granted to clients who were not told, and forgets what was asked for and never granted.
func (h *history) resolve() {
	granted := map[string]historyLease{}
	for _, lease := range h.leases {
		granted[string(lease.Lock)+" "+lease.RequestID] = lease
	}
	resolved := h.operations[:0]
	for _, operation := range h.operations {
		call, answer := operation.Input.(historyCall), operation.Output.(historyAnswer)
		if call.acquire != nil && answer.told.Code == storetest.CodeUnknown {
			lease, ok := granted[string(call.acquire.Lock)+" "+call.acquire.RequestID]
			if !ok {
				continue
			}
			answer.made = storetest.Grant{
				Token: lease.Token, ID: lease.ID, Mode: lease.Mode, Scope: lease.Scope, TTL: call.acquire.TTL,
				GrantedAt: lease.GrantedAt.UnixMicro(), ExpiresAt: lease.GrantedAt.Add(call.acquire.TTL).UnixMicro(),
			}
			operation.Output = answer
		}
		resolved = append(resolved, operation)
	}
	h.operations = resolved
}

// check returns what of the contract the history breaks.
func (h *history) check() error {
	accepted := h.accepted()
	return errors.Join(
		h.checkOrder(),
		checkLeasesApart(h.leases), checkTokensRise(h.leases), h.checkGrantsKept(),
		h.checkNoneLate(accepted), checkAppliedOnce(accepted))
}

var errNoVerdict = errors.New("the checker came to no verdict")

// checkOrder looks for an order of all operations in which the model gives the same answers.
func (h *history) checkOrder() error {
	switch result := porcupine.CheckOperationsTimeout(h.model, h.operations, historyPatience); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w on %d operations within %s", errNoVerdict, len(h.operations), historyPatience)
	default:
		return errors.New("there is no order in which the contract gives these answers")
	}
}

// meets reports whether two leases cover a name in common.
func (l historyLease) meets(other historyLease) bool {
	return l.Lock == other.Lock || l.Scope == store.Subtree && strings.HasPrefix(string(other.Lock), string(l.Lock)+"/") ||
		other.Scope == store.Subtree && strings.HasPrefix(string(l.Lock), string(other.Lock)+"/")
}

// checkLeasesApart is P1, on the database's clock.
func checkLeasesApart(leases []historyLease) error {
	for i, one := range leases {
		for _, other := range leases[i+1:] {
			shared := one.Mode == store.Shared && other.Mode == store.Shared
			apart := !one.GrantedAt.Before(other.end()) || !other.GrantedAt.Before(one.end())
			if one.meets(other) && !shared && !apart {
				return fmt.Errorf("P1: lease %d on %s was live from %s until %s, and lease %d on %s from %s until %s",
					one.Token, one.Lock, one.GrantedAt, one.end(), other.Token, other.Lock, other.GrantedAt, other.end())
			}
		}
	}
	return nil
}

// checkTokensRise is P2: the order of tokens is the order of grants.
func checkTokensRise(leases []historyLease) error {
	byTime := slices.Clone(leases)
	slices.SortStableFunc(byTime, func(a, b historyLease) int { return a.GrantedAt.Compare(b.GrantedAt) })
	for i, last := range byTime {
		for _, next := range byTime[i+1:] {
			if last.meets(next) && next.Token <= last.Token {
				return fmt.Errorf("P2: %s: token %d was granted at %s, after token %d on %s",
					next.Lock, next.Token, next.GrantedAt, last.Token, last.Lock)
			}
		}
	}
	return nil
}

// checkGrantsKept is P9 as far as leases go: no grant that a client was told of is missing.
func (h *history) checkGrantsKept() error {
	kept := map[string]bool{}
	for _, lease := range h.leases {
		kept[fmt.Sprint(lease.Lock, lease.Token, lease.ID)] = true
	}
	for _, operation := range h.operations {
		call, told := operation.Input.(historyCall), operation.Output.(historyAnswer).told
		if call.acquire != nil && told.Code == storetest.CodeGranted && !kept[fmt.Sprint(call.acquire.Lock, told.Token, told.ID)] {
			return fmt.Errorf("P9: %s was granted token %d, which the database does not know", told.Owner, told.Token)
		}
	}
	return nil
}

// acceptedWrite is a write to one resource that a client was told is admitted.
type acceptedWrite struct {
	store.WriteToken
	version  int64
	replayed bool
	call     int64
}

func (h *history) accepted() []acceptedWrite {
	var accepted []acceptedWrite
	for _, operation := range h.operations {
		call, told := operation.Input.(historyCall), operation.Output.(historyAnswer).told
		switch {
		case told.Code != storetest.CodeAdmitted:
		case call.write != nil:
			accepted = append(accepted, acceptedWrite{call.write.WriteToken, told.Version, told.Replayed, operation.Call})
		case call.transaction != nil:
			var versions [2]int64
			if _, err := fmt.Sscan(told.Versions, &versions[0], &versions[1]); err != nil {
				panic(err)
			}
			for i, claim := range call.transaction.Tokens {
				accepted = append(accepted, acceptedWrite{claim, versions[i], told.Replayed, operation.Call})
			}
		}
	}
	return accepted
}

// checkNoneLate is P3 on the clients' clock: what was sent after an acquire had returned a token did not get in with an older one.
func (h *history) checkNoneLate(accepted []acceptedWrite) error {
	type grant struct {
		historyLease
		returned int64
	}
	var grants []grant
	for _, operation := range h.operations {
		call, told := operation.Input.(historyCall), operation.Output.(historyAnswer).told
		if call.acquire != nil && told.Code == storetest.CodeGranted {
			lease := historyLease{Lock: call.acquire.Lock, Scope: call.acquire.Scope, Token: told.Token}
			grants = append(grants, grant{lease, operation.Return})
		}
	}
	for _, write := range accepted {
		for _, grant := range grants {
			if grant.meets(historyLease{Lock: write.Resource}) && !write.replayed && grant.returned < write.call && write.Token < grant.Token {
				return fmt.Errorf("P3: %s: a write under %s was admitted that was sent after token %d had been granted on %s",
					write.Resource, claimText(write.WriteToken), grant.Token, grant.Lock)
			}
		}
	}
	return nil
}

// checkAppliedOnce is P10: a numbered write is applied once and answered alike; and no two writes make the same version.
func checkAppliedOnce(accepted []acceptedWrite) error {
	numbers, versions := map[string]int64{}, map[string]string{}
	for _, write := range accepted {
		if !write.replayed {
			version := fmt.Sprint(write.Resource, " version ", write.version)
			if other, twice := versions[version]; twice {
				return fmt.Errorf("P10: the writes under %s and %s both made %s", other, claimText(write.WriteToken), version)
			}
			versions[version] = claimText(write.WriteToken)
		}
		if write.Sequence == nil {
			continue
		}
		number := fmt.Sprint(write.Resource, " ", claimText(write.WriteToken))
		if version, twice := numbers[number]; twice && version != write.version {
			return fmt.Errorf("P10: the write %s gave version %d and version %d", number, version, write.version)
		}
		numbers[number] = write.version
	}
	return nil
}
