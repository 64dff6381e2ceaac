// Package lockclient is the Go client of fencegate. It acquires leases on named locks, renews them, and sends writes
// that carry their fencing tokens. It depends on the standard library and gateway/api only.
//
//	client, err := lockclient.New("http://a:8080", lockclient.WithFailover("http://b:8080"))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	err = client.Do(ctx, "job-42", func(ctx context.Context, lease *lockclient.Lease) error {
//		result, err := compute(ctx) // ctx ends when the lease is lost
//		if err != nil {
//			return err
//		}
//		_, err = lease.Put(ctx, "result", result) // rejected if another holder has taken over
//		return err
//	})
//
// # Terms
//
// A lease holds a lock for a limited time, its TTL, and must be renewed before it expires. Each grant of a lock has a
// fencing token, a number greater than all before. A fence protects a resource: it remembers the newest token, and
// rejects writes with older ones. The resource has the name of the lock.
//
// # Which call to use
//
//   - [Client.Do]: work that needs the lock from beginning to end. It waits, renews and releases.
//   - [Client.Acquire]: a lease that outlives a function. It is one try, or with [WithWait] a wait in the lock's queue.
//     Defer [Lease.ReleaseOnce]. Call [Lease.StartHeartbeat] if the work may take longer than the TTL.
//   - [Client.AcquireWithRetry]: tries with pauses, without a wait in the queue.
//   - [Client.NewSession]: many leases with one TTL and one heartbeat.
//   - [Client.Campaign]: one leader among many candidates. [API.Election] and [Client.Observe] name the leader.
//   - [Lease.Put], [Lease.Delete], [Lease.Transaction], [Client.Transact]: writes that only the holder may make.
//   - The packages pgxguard and sqlguard: transactions on your own tables, which the fence admits.
//   - [Lease.Numbered]: writes to any other system that checks fencing tokens.
//   - [Lease.Pipeline]: many writes of one lease, without waiting for each. [Client.BulkWriter]: the same for
//     ready-made lines of any leases.
//   - [Client.Watch], [Client.Rejections]: for people, dashboards and caches. Don't base decisions on them.
//   - [Client.API]: the HTTP API as it is, for tools.
//
// There is no sync.Locker on purpose. Its Lock can't report that the lock was lost later, nor its Unlock that it was
// lost before. Code written for a mutex relies on being alone between the two, and no lease can promise that. Use Do.
//
// # Only the fence is authoritative
//
// This process may believe that it holds a lease although it doesn't: it may have been paused, its renewals lost, its
// lock broken. The gateway's database decides whether a write is admitted, at the moment of the write, with the fence's
// row locked. So don't check the lease before a write. Send the write with its token, and obey the answer. That is why
// the client sends writes even after [Lease.Err] says that the lease is lost.
//
//	  Acquire            Renew*             Release, or nothing
//	free ───────────► held ───────────► held ───────────► free / expired
//	                   │                                    │
//	                   │ writes with its token pass         │ if expired and not replaced: writes still pass,
//	                   ▼                                    ▼   unless the policy requires a live lease
//	          after a newer grant, a release or a break: ErrTokenStale, for ever
//
// The client's own view of a lease is its validity:
//
//	Acquire
//	   │        renewal answered: the window starts again
//	   ▼       ╭────────╮
//	 valid ◄───┴────────╯
//	   │
//	   ├── Release, Session.Close ────────────────────► ErrLeaseReleased
//	   ├── the window ends without a renewal ─────────► ErrLeaseLost
//	   ├── a renewal or a write is answered so ───────► ErrLeaseLost
//	   └── Client.Close ──────────────────────────────► ErrClosed
//
// Each of the four ends is final, and the cause of the lease's Context.
//
// # The validity window
//
// No fence guards an e-mail or a call to another service. Such work can only rely on time: let it depend on
// [Lease.Context], which is canceled at the end of the window.
//
// A lease lasts by the database's clock, so don't compare its ExpiresAt with this machine's. The client reasons so:
// the database granted or renewed the lease after the request was sent. Therefore the lease lasts at least until the
// request was sent, plus its TTL. The window is that, less a hundredth of the TTL for clocks that run at different
// rates.
//
// For an acquire, the time of the first request counts. After a wait in the queue the window might be over, so a lease
// that arrives later than a tenth of its TTL is renewed before Acquire returns it, and the renewal's time counts. The
// times in answers are never used.
//
// The client reads the monotonic and the wall clock, and the one that says more counts: the first may stop while a
// machine sleeps, the second may be set back. A wall clock that is set forward may end the window too early, which is
// safe. The Context reads the clocks at each call of Err and Done, since a frozen process wakes before its timers fire.
// Contexts derived from it are canceled by a timer, a moment later.
//
// The window can't stop what has begun: time passes between a look at the Context and the effect. Fence what must not
// happen late.
//
// # Numbered writes
//
// A token without a sequence admits one write. The writes of a [Lease] are numbered 34.1, 34.2, 34.3, … Each is applied
// exactly once, however often it is sent: a repetition gets the first answer again, marked Replayed. They are sent one
// at a time, in order, because a later number that arrives first makes the earlier one stale. Guarded transactions and
// writes by [Lease.Numbered] take their numbers in the same order.
//
// # Failures
//
//   - An answer is lost. The client resends the request. An acquire carries a request_id and a write its number, so
//     there is no second lease and no second write. Renewals and releases may be repeated by their nature.
//   - Attempts that fail and are retried are reported to the hook of [WithRetryHook], and logged as warnings
//     ([WithLogger]).
//   - A gateway dies or freezes. Calls continue at the next of [WithFailover]: at once if nothing was applied, and
//     after an unknown outcome only if they may be repeated. A waiter loses its ticket by that; a holder
//     keeps its lease.
//   - All gateways are unreachable. Heartbeats are retried until the window ends, writes and releases for some 30
//     seconds or until ctx ends. The error is ErrUnavailable. If it also matches [ErrOutcomeUnknown], the change may
//     have been applied.
//   - The process or its machine is paused. It finds a canceled Context when it wakes; its writes are ErrTokenStale if
//     another holder has the lock.
//   - The process dies. Its leases and sessions expire with their TTLs, and the next waiters are granted the locks.
//   - The caller cancels an acquire, or no answer arrives. If a lease was granted, the client releases it in the
//     background, as far as it can.
//
// # Errors
//
// Every refusal is an [*Error] with an [api.Problem]. Compare it with the sentinels by errors.Is:
//
//   - ErrLockHeld: try again after the recommended time.
//   - ErrDeadlock: release your leases, and begin again.
//   - ErrTokenStale, ErrTokenUnknown, ErrLeaseLost, ErrLeaseMismatch, ErrLeaseExpired: the caller is not the holder.
//     Stop.
//   - ErrVersionMismatch: read the record again.
//   - ErrUnavailable: try again.
//   - ErrLockHeld with context.DeadlineExceeded or context.Canceled: ctx ended the wait for a lock. The
//     Holder of the problem is the last one that a gateway reported.
//   - context.Canceled alone: the caller canceled the call. It does not match ErrUnavailable: don't retry.
//   - ErrLeaseLost with context.Canceled, from any call: its ctx is that of a lost lease. It does not match
//     ErrUnavailable.
//   - ErrOutcomeUnknown and ErrForeignAnswer, also beside another: a change may have been applied.
package lockclient
