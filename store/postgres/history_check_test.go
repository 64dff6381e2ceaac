package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyPatience bounds the checker's search. It needs milliseconds where an order exists, on a quiet machine.
const historyPatience = 2 * time.Minute

// historyLease is a lease as the database keeps it.
type historyLease struct {
	Lock      store.Name
	Mode      store.Mode
	Scope     store.Scope
	Token     int64
	ID        uuid.UUID
	RequestID string
	GrantedAt time.Time
}

func readHistoryLeases(t *testing.T, sql *pgx.Conn, prefix string) []historyLease {
	t.Helper()
	rows, err := sql.Query(t.Context(), `
		select l.lock, l.mode, l.scope, l.fencing_token, l.lease_id, l.request_id, l.granted_at
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

// resolve finds the leases whose grants were not answered, and removes the acquires that were never granted.
func (h *history) resolve() {
	granted := map[string]historyLease{}
	for _, lease := range h.leases {
		granted[string(lease.Lock)+" "+lease.RequestID] = lease
	}
	resolved := h.operations[:0]
	for _, operation := range h.operations {
		call, result := operation.Input.(historyCall), operation.Output.(historyResult)
		if call.acquire != nil && result.answer.Code == storetest.CodeUnknown {
			lease, ok := granted[string(call.acquire.Lock)+" "+call.acquire.RequestID]
			if !ok {
				continue
			}
			result.made = storetest.Grant{
				Token: lease.Token, ID: lease.ID, Mode: lease.Mode, Scope: lease.Scope, TTL: call.acquire.TTL,
				GrantedAt: lease.GrantedAt.UnixMicro(), ExpiresAt: lease.GrantedAt.Add(call.acquire.TTL).UnixMicro(),
			}
			operation.Output = result
		}
		resolved = append(resolved, operation)
	}
	h.operations = resolved
}

// check returns an error if the answers break the contract (P1 to P3, P10), or a grant is lost (P9).
func (h *history) check() error { return errors.Join(h.checkOrder(), h.checkGrantsKept()) }

var errNoVerdict = errors.New("the checker found no verdict")

// checkOrder looks for an order of all operations in which the model gives the same answers.
func (h *history) checkOrder() error {
	switch result := porcupine.CheckOperationsTimeout(h.model, h.operations, historyPatience); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w on %d operations within %s", errNoVerdict, len(h.operations), historyPatience)
	default:
		return errors.New("no order of the calls has these answers by the contract")
	}
}

// checkGrantsKept is P9 for leases: no grant that was answered is missing.
func (h *history) checkGrantsKept() error {
	kept := map[string]bool{}
	for _, lease := range h.leases {
		kept[fmt.Sprint(lease.Lock, lease.Token, lease.ID)] = true
	}
	for _, operation := range h.operations {
		call, answer := operation.Input.(historyCall), operation.Output.(historyResult).answer
		if call.acquire != nil && answer.Code == storetest.CodeGranted &&
			!kept[fmt.Sprint(call.acquire.Lock, answer.Token, answer.ID)] {
			return fmt.Errorf("P9: %s was granted token %d, and the database has no such lease", answer.Owner, answer.Token)
		}
	}
	return nil
}
