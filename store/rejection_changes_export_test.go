package store

import "time"

// Ahead has the follower believe that the database's clock was that much ahead at its last reading.
func (f *RejectionFollower) Ahead(d time.Duration) { f.at = f.at.Add(d) }

// Remembered returns how many groups the follower remembers.
func (f *RejectionFollower) Remembered() int { return len(f.seen) }
