// Package gocronlock lets several schedulers of [github.com/go-co-op/gocron/v2] share their jobs by fencegate.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(client, "cron/")))
//
// A [Locker] grants each run of a job to one scheduler. An [Elector] lets one scheduler run all jobs.
//
// # Limits
//
// A lock keeps two schedulers from running a job at the same time, not from running it twice: a scheduler with a slow
// clock finds the lock free after another has finished. And a job that was frozen may continue after the loss of its
// lease. Let a job write under a fencing token what must happen once: acquire a lease in the job, or use the Elector's
// Lease, whose token is the term.
package gocronlock
