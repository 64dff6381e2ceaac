package postgres

import "time"

// Follower is the RejectionFollower of a Store.
type Follower = rejectionFollower

// Ahead has the follower believe that the database's clock was that much ahead at its last reading.
func (f *rejectionFollower) Ahead(d time.Duration) { f.at = f.at.Add(d) }

// Remembered returns how many groups the follower remembers.
func (f *rejectionFollower) Remembered() int { return len(f.seen) }
