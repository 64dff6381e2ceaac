// Package lockclient is the Go client of fencegate: it acquires leases and sends writes that carry their fencing
// tokens. It imports the standard library and gateway/api only.
//
//	client, err := lockclient.New("http://127.0.0.1:8080")
//	lease, err := client.Acquire(ctx, "job-42", api.AcquireRequest{OwnerID: "worker-1"})
//	sequence := int64(1)
//	token := api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}
//	_, err = client.Put(ctx, "job-42", "state", lockclient.Write{Token: token, Value: []byte("done")})
//	if errors.Is(err, lockclient.ErrTokenStale) {
//		// Another holds the lock: stop working, don't retry.
//	}
//
// # What is authoritative
//
// Only the fence is. A lease that this process believes to hold proves nothing: the process may have been paused, its
// renewals lost, its lock broken. Whether a write is admitted is decided by the gateway's database, with the fence row
// locked, at the moment of the write. So never ask "do I still hold it?" before a write; send the write with its token
// and obey the answer.
//
//	  Acquire            Renew*              Release, or nothing
//	free ──────────► held ──────────► held ──────────► free / expired
//	                  │                                   │
//	                  │ writes with its token pass        │ expired, nobody has replaced it: writes still pass,
//	                  ▼                                   ▼   unless the policy demands a live lease
//	           a newer grant, a release or a break: ErrTokenStale, for ever
//
// # The trust window
//
// Work that no fence guards (an e-mail, a call to another service) can only rely on time. The lease's clock is the
// database's, so ExpiresAt must not be compared with this machine's clock. What holds: the lease runs at least until
// the moment before the acquire or renewal was sent, plus the TTL, both by this process's monotonic clock. Stop such
// work a margin before that moment. Work under the fence needs no margin.
//
// # Numbered writes
//
// A token without a sequence admits one write. A holder that writes more numbers its writes 1, 2, 3, …; each is applied
// exactly once, however often it is sent: the same write again is answered with the first answer, marked Replayed.
//
// # Failures
//
// Every refusal is an [*Error] and carries an [api.Problem]; compare with the sentinels by errors.Is:
//
//   - ErrLockHeld: somebody else holds the lock. Try again after the recommended time.
//   - ErrTokenStale, ErrTokenUnknown, ErrLeaseLost, ErrLeaseMismatch, ErrLeaseExpired: the caller is not the holder. Stop.
//   - ErrVersionMismatch: the record has changed. Read it again.
//   - ErrUnavailable: the gateway or its database could not be reached, or no answer came. Problem.Outcome says whether a
//     write may have been applied: not_applied, or unknown. Where it is unknown send the same write again, with the
//     same token and sequence; an acquire, with the same request_id. The client repeats nothing by itself.
//   - ErrForeignAnswer: what answered is not fencegate (a proxy's error page). A write may have been applied.
package lockclient
