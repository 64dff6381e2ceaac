// Package k8slock lets the leader election of Kubernetes' client-go run on fencegate. A [Lock] is a
// [resourcelock.Interface], for leaderelection.LeaderElectionConfig:
//
//	lock := k8slock.New(client, "controllers/billing", identity)
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock:            lock,
//		LeaseDuration:   15 * time.Second,
//		RenewDeadline:   10 * time.Second,
//		RetryPeriod:     2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) {
//				lease := lock.Lease()
//				if ctx.Err() != nil {
//					return // the term is over already, and lease may be that of the next one
//				}
//				_, err := lease.Put(ctx, "state", state) // rejected once another candidate leads
//				…
//			},
//			OnStoppedLeading: func() { os.Exit(1) },
//		},
//	})
//
// With a Lease of Kubernetes, a leader that was paused may still write after another one has begun to lead: each checks
// its own clock, and nothing checks the writes. Here each term has a fencing token, and the gateway rejects the writes
// of an older term.
//
// # How an election is kept
//
// A term is a lease on the lock with the election's name, and its TTL is LeaseDuration in whole seconds. The elector's
// renewals renew it; there is no other heartbeat. The election is listed among fencegate's. In the record of the
// election
//
//   - LeaderTransitions is the term, which is the fencing token of the newest lease. It rises with each term, but not
//     by one. A token is below 2^53; where an int has 32 bits, LeaderTransitions stops at the greatest int. The number
//     that an elector writes is ignored: tokens are granted, not chosen.
//   - HolderIdentity is empty if nobody leads: after a release, and from the moment that the lease has expired. So
//     candidates take over at their next try.
//   - AcquireTime and RenewTime are by the database's clock.
//
// # Differences from a Lease of Kubernetes
//
//   - A term that is lost stays lost. Update returns a conflict until the elector has given up (LeaseDuration and a
//     second), although nobody may lead meanwhile. Otherwise a leader could lead again under a new token and not know
//     that another one led in between. A new Lock does not wait.
//   - A process that starts again with the same identity is another candidate: it waits until the old lease has ended.
//   - A release of a lost term succeeds and does nothing.
//   - LeaseDuration is at least a second.
//   - Coordinated leader election (Strategy, PreferredHolder) is not supported.
//
// Give the client WithAnswerTimeout of less than RenewDeadline, so that one request to a gateway that hangs leaves time
// for the next one.
package k8slock
