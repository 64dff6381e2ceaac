package store

import "time"

// Record is a key and a value stored under a resource.
type Record struct {
	Resource    Name
	Key         Name
	Version     int64
	Token       int64 // of the write that stored it
	Sequence    *int64
	ContentType string
	Value       []byte // nil in lists
	Size        int64  // of the value in bytes
	UpdatedAt   time.Time
}

// RecordQuery selects records of a resource.
type RecordQuery struct {
	Resource Name
	Prefix   string // of the key, any text
	After    string // keys greater than this, in byte order
	Limit    int    // 1 to PageMax

	// ByTime sorts the newest record first, those of the same microsecond in byte order of their keys. Then After is
	// the key of the last record that was seen, and AfterMicros its time, in microseconds since 1970; zero: none was.
	ByTime      bool
	AfterMicros int64
}

// Check returns ErrInvalid if the query is outside its limits.
func (q RecordQuery) Check() error { return checkLimit(q.Limit) }
