// Package lockclient is the Go client of fencegate. It acquires leases on named locks, renews them, and sends writes
// that carry their fencing tokens. It imports the standard library only.
//
//	client, err := lockclient.New("http://a:8080", lockclient.WithFailover("http://b:8080"))
//	if err != nil {
//		return err
//	}
//	defer client.Close() // ends all that the client runs in the background
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
// A [Lease] holds a lock for a limited time, and is renewed in the background. Each grant has a fencing token, greater
// than all before. The fence of the resource with the lock's name rejects writes with an older token than the newest.
// Only the fence is authoritative: don't check the lease before a write. Send the write, and obey the answer.
//
// A loss is [ErrNotHolder], whether a write is rejected first or the heartbeat or the clocks find it. Its text says who
// holds the lock now, and for how long this process did not run ([LossOf]).
//
//   - [Client.Do]: work that needs the lock from beginning to end.
//   - [Client.Acquire]: a lease that outlives a function; one try, or with [WithWait] a wait in the lock's queue.
//   - [Client.NewSession]: many leases with one TTL and one heartbeat.
//   - [Client.Elect]: one leader among many candidates.
//   - [Lease.Get], [Lease.Put], [Client.Transact], [Lease.Writes], [Client.Writes]: records of the gateway.
//   - The packages pgxguard and sqlguard: transactions on your own tables, which the fence admits.
//   - [Lease.Numbered]: writes to any other system that checks fencing tokens.
//   - [Lease.Context]: work that no fence guards, such as an e-mail.
//   - [Client.Watch]: for people and caches. [Client.API] and the package admin: the HTTP API, for tools.
//
// The docs of [Client] describe failures, those of [Lease] validity, and those of [Error] the errors.
//
// There is no sync.Locker on purpose: its Lock can't report that the lock was lost later. Use Do.
package lockclient
