// Package lockclient is the Go client of fencegate: it acquires leases, keeps them alive, and sends writes that carry
// their fencing tokens. It imports the standard library and gateway/api only.
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
//		_, err = lease.Put(ctx, "result", result) // is refused if another holds the lock
//		return err
//	})
//
// # Which call to use when
//
//   - [Client.Do]: work that needs the lock from its beginning to its end. It waits, renews, releases.
//   - [Client.Acquire]: a lease that outlives a function. A try, or with [WithWait] a place in the line. Defer
//     [Lease.ReleaseOnce]; call [Lease.StartHeartbeat] if the work may take longer than the TTL.
//   - [Client.AcquireWithRetry]: tries with pauses, where a place in the line is not wanted.
//   - [Client.NewSession]: many leases that live and die together, with one heartbeat for all.
//   - [Client.Campaign]: one leader among many candidates. [Client.Leader] and [Client.Observe] tell the others who
//     it is.
//   - [Lease.Put], [Lease.Delete], [Lease.Transaction], [Client.Transact]: what must not be done by who no longer
//     holds the lock.
//   - [Lease.Pipeline]: many writes of one lease, without waiting for each.
//   - [Client.Watch], [Client.Rejections]: for people, dashboards and caches, never for decisions.
//   - [Client.API]: the HTTP API as it is, for tools.
//
// There is no sync.Locker on purpose. Its Lock can't tell that the lock was lost later, nor Unlock that it was lost
// before; code that is written for a mutex believes that nobody else can be between the two, and no lease can promise
// that. Do is what comes closest.
//
// # What is authoritative
//
// Only the fence is. A lease that this process believes to hold proves nothing: the process may have been paused, its
// renewals lost, its lock broken. Whether a write is admitted is decided by the gateway's database, with the fence row
// locked, at the moment of the write. So never ask "do I still hold it?" before a write; send the write with its token
// and obey the answer. That is why writes are sent even after [Lease.Err] has begun to say that the lease is lost.
//
//	  Acquire            Renew*              Release, or nothing
//	free ──────────► held ──────────► held ──────────► free / expired
//	                  │                                   │
//	                  │ writes with its token pass        │ expired, nobody has replaced it: writes still pass,
//	                  ▼                                   ▼   unless the policy demands a live lease
//	           a newer grant, a release or a break: ErrTokenStale, for ever
//
// And as this process sees it:
//
//	Acquire
//	   │         renewal answered: the window begins anew
//	   ▼        ╭────────╮
//	trusted ◄───┴────────╯
//	   │
//	   ├── Release, Resign, Session.Close ──────────────► ErrLeaseReleased
//	   ├── the window ends, no renewal was answered ────► ErrLeaseLost
//	   ├── a renewal or write is told that it is over ──► ErrLeaseLost
//	   └── Client.Close ────────────────────────────────► ErrClosed
//
// Each of the four is final, and the cause of the lease's Context.
//
// # The validity window
//
// Work that no fence guards (an e-mail, a call to another service) can only rely on time; it must hang on
// [Lease.Context]. The lease's clock is the database's, so its ExpiresAt must not be compared with this machine's
// clock. What holds instead: the database granted or renewed after the request was sent. So the lease runs at least
// until the moment before the request was sent, plus its TTL, less a hundredth of the TTL for clocks that don't run
// alike. That is the window, and the Context is cancelled at its end.
//
// The moment counts at which the request_id of an acquire was first sent. Who has stood in line would find the window
// half over, or past; so a lease that comes later than a tenth of its TTL is renewed before Acquire returns it, and
// the renewal's own moment counts. The times in answers are never used.
//
// Both clocks of the machine are looked at, the monotonic and the wall clock, and the one that says more counts: the
// first may stand still while a machine sleeps, the second may be set back. A wall clock that is set forward by more
// than is left of the window ends the lease too early, which is safe. The Context looks at the clocks itself whenever
// it is asked, since a process that was frozen wakes before its timers do. Contexts derived from it are cancelled by
// a timer, a moment later.
//
// What the window can't do is to stop what is already under way: between a look at the Context and the effect lies
// time. What must not happen late needs the fence.
//
// # Numbered writes
//
// A token without a sequence admits one write. The writes of a Lease are numbered 34.1, 34.2, 34.3, …; each is
// applied exactly once, however often it is sent: the same write again is answered with the first answer, marked
// Replayed. They are sent one at a time, in order, because a later number that comes first shuts the earlier one out.
//
// # Failures
//
//   - An answer is lost. Acquires carry a request_id and writes a number, so they are sent again as they are: there
//     is no second lease and no second write. Renewals and releases may be sent twice by their nature.
//   - Failed attempts that are tried again are reported to the hook of [WithRetryHook], and logged as warnings, see
//     [WithLogger].
//   - A gateway dies, or stands still. Calls go on to the next of [WithFailover]: at once where nothing was sent or
//     applied, and where that is unknown only if they may be sent twice. A place in the line is lost by that, a lease
//     is not.
//   - All gateways are away. Heartbeats go on trying until the window ends; writes and releases for some 30 seconds
//     or until ctx ends. The error is ErrUnavailable; if it is also [ErrOutcomeUnknown], it may have been applied.
//   - The process is paused, or its machine is. It wakes to a cancelled Context; its writes are ErrTokenStale if
//     another has the lock.
//   - The process dies. Its leases and sessions end with their TTLs, and who waits is granted the lock then.
//   - The caller gives up while an acquire is under way. If a lease was granted, the client gives it back in the
//     background.
//
// # Errors
//
// Every refusal is an [*Error] and carries an [api.Problem]; compare with the sentinels by errors.Is:
//
//   - ErrLockHeld: somebody else holds the lock, see [Holder]. Try again after the recommended time.
//   - ErrDeadlock: the wait would never end, see [Cycle]. Release what you hold, and begin again.
//   - ErrTokenStale, ErrTokenUnknown, ErrLeaseLost, ErrLeaseMismatch, ErrLeaseExpired: the caller is not the holder.
//     Stop.
//   - ErrVersionMismatch: the record has changed. Read it again.
//   - ErrUnavailable: the gateway or its database could not be reached, or no answer came.
//   - context.DeadlineExceeded with ErrLockHeld: ctx ended the wait for a lock; [Holder] is the last that a gateway
//     reported.
//   - ErrLeaseLost with context.Canceled, of any call: its ctx is that of a lease that is lost. It is never
//     ErrUnavailable, too. If the request was under way it is also ErrOutcomeUnknown.
//   - ErrOutcomeUnknown, beside another: a change may have been applied, and nobody will tell.
//   - ErrForeignAnswer: what answered is not fencegate (a proxy's error page). A change may have been applied.
//   - ErrClosed: the client was closed.
package lockclient
