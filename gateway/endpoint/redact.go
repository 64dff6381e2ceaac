package endpoint

import (
	"errors"
	"time"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// hiddenText stands for an owner, and a lock, that the caller may not see.
const hiddenText = "…"

// hiddenTurn is the assumed time to the end of a lease that the caller may not see.
const hiddenTurn = time.Second

// Redacted removes from an error of the store what tells the principal of names that it may not see: a lease on a name
// above or below that is in the way, owners who wait elsewhere in a cycle, and the resource of another row.
func Redacted(principal *access.Principal, err error) error {
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		if held.OwnerID != "" && held.By != "" && held.By != held.Lock && !mayLook(principal, held.By) {
			return &store.HeldError{Lock: held.Lock, Hidden: true, Remaining: hiddenTurn, QueueLength: held.QueueLength}
		}
		return err
	}
	if deadlock, ok := errors.AsType[*store.DeadlockError](err); ok {
		return &store.DeadlockError{Cycle: Convert(deadlock.Cycle, func(wait store.Wait) store.Wait {
			if mayLook(principal, wait.Lock) {
				return wait
			}
			return store.Wait{OwnerID: hiddenText, Lock: hiddenText}
		})}
	}
	rejected, ok := errors.AsType[*store.RejectedError](err)
	if ok && rejected.Table != "" && !principal.May(access.Write, string(rejected.Resource)) {
		return WriteRule.Forbidden()
	}
	return err
}

// mayLook reports whether the principal may see who holds a lock and waits for it.
func mayLook(principal *access.Principal, lock store.Name) bool {
	return principal.May(access.Observe, string(lock)) || principal.May(access.Lock, string(lock))
}

// WriteRule is the rule of each name in a bulk line or a transaction.
var WriteRule = OnEach(access.Write)
