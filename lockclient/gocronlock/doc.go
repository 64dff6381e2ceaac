// Package gocronlock lets several schedulers of [github.com/go-co-op/gocron/v2] share their jobs by fencegate.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(client, "cron/")))
//
// A [Locker] decides for each run who does it; an [Elector] decides who runs everything.
//
// # What it does not do
//
// A lock keeps two schedulers from running a job at the same time, not from running it twice: a scheduler whose clock is late finds the
// lock free again when the first is through. And a job that was frozen may go on after its lease was lost. Let a job write under a
// fencing token what must happen once: acquire a lease for it within the job, or use the Elector's Leadership, whose term is a token.
package gocronlock
