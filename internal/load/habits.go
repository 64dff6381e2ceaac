package load

import "time"

// habits are what clients do, and how long they wait. Those without a unit are how often of a hundred times.
type habits struct {
	shared    int // acquire a shared lease
	waiting   int // wait for the lock
	freezing  int // pause past the TTL, then write
	abandoned int // leave the lease to expire
	long      int // hold it for longer than its TTL, by heartbeats
	reading   int // read records
	renewing  int // renew the lease after a write
	twice     int // send a write twice at the same time
	repeated  int // send it again after it was admitted
	lost      int // throw an answer away
	leaving   int // leave a write that was not applied, instead of sending it again

	// TTLs are short enough for many leases to run out while a load lasts.
	ttlLeastMS, ttlSpreadMS int64
	// writesMax is how many writes a client makes under a lease, at most.
	writesMax int
	// patience is how long a client waits for one answer before it turns to another gateway.
	patience time.Duration
	// finishWithin bounds what was begun before the end, and the readings after it.
	finishWithin time.Duration
}

// waitMostMS is the longest wait for a lock.
const waitMostMS = 2000

// standard are the habits of Run's clients.
var standard = habits{
	shared: 15, waiting: 60, freezing: 6, abandoned: 5, long: 4,
	reading: 25, renewing: 25, twice: 10, repeated: 10, lost: 5,
	ttlLeastMS: 250, ttlSpreadMS: 750, writesMax: 6, patience: 5 * time.Second, finishWithin: 15 * time.Second,
}
