package redislease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// reportEvery is how often one kind of failure of a server is reported at most.
	reportEvery = time.Minute
	// remainingMax is the longest time that the key of another program is said to last: ten years.
	remainingMax = 10 * 365 * 24 * time.Hour
)

// server is one Redis: a single server, what Sentinels lead to, or a Cluster.
type server struct {
	client  redis.UniversalClient
	address string
	timeout time.Duration
	listens atomic.Bool // to published releases

	mu       sync.Mutex
	stats    ServerStats
	onError  func(error) // nil: nobody listens
	reported map[Kind]time.Time
}

// ServerStats are what is known of a server.
type ServerStats struct {
	Address string
	// Up says that the last call succeeded, or failed for a reason that the server has got over or that one key has.
	Up    bool
	Calls uint64
	// Errors are the calls that failed, by kind.
	Errors map[Kind]uint64
	// LastError is the message of the newest of them, LastErrorAt its time by the clock of this process.
	LastError   string
	LastErrorAt time.Time
	// QuarantinedUntil is until when the server does not vote since it was started, by the clock of this process. Zero: it
	// votes.
	QuarantinedUntil time.Time
}

func newServer(client redis.UniversalClient, address string, timeout time.Duration) *server {
	return &server{
		client: client, address: address, timeout: timeout,
		stats: ServerStats{Address: address, Errors: map[Kind]uint64{}}, reported: map[Kind]time.Time{},
	}
}

func closeAll(servers []*server) {
	for _, s := range servers {
		_ = s.client.Close()
	}
}

// run runs a script. It returns a Failure, also of a server that does not vote.
func (s *server) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (reply, error) {
	fields, err := script.Run(ctx, s.client, keys, args...).Slice()
	answer := reply(fields)
	switch err := s.record(err); {
	case err != nil:
		return nil, err
	case answer.text(0) == "restarted":
		return nil, s.restarted(ms(answer.number(1)))
	}
	return answer, nil
}

// reply is the answer of a script: what it did, and then texts and numbers. A field that is missing reads as zero.
type reply []any

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	text, _ := r[i].(string)
	return text
}

func (r reply) number(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

// said is the condition that a script has answered one of these words.
func said(words ...string) func(reply) bool {
	return func(r reply) bool { return slices.Contains(words, r.text(0)) }
}

// seen is what a server has at the key of a lock.
type seen struct {
	nowMS, leftMS int64 // leftMS is -1 for a key that never expires
	text          string
	found         bool
	value         *value // nil: fencegate has not written it, or nothing is there
}

// remaining is how long the key lasts; 0: for ever, or nothing is there. Other programs may have set any time.
func (k seen) remaining() time.Duration {
	if !k.found || k.leftMS < 0 {
		return 0
	}
	return ms(min(max(1, k.leftMS), remainingMax.Milliseconds()))
}

// id is the same for the copies of a key that were written together. A reservation is another one than its lease.
func (k seen) id() string {
	if k.value != nil {
		return fmt.Sprint(k.value.LeaseID, k.value.Token)
	}
	return "other: " + k.text
}

// newSeen reads three fields of an answer: the time of the server, that left, and the value.
func newSeen(r reply, at int) seen {
	k := seen{nowMS: r.number(at), leftMS: r.number(at + 1), text: r.text(at + 2)}
	if k.found = k.leftMS != -2; k.found {
		k.value = parse(k.text)
	}
	return k
}

// look returns what is at the keys. A key of another type than string is found, and not fencegate's.
func (s *server) look(ctx context.Context, keys []string) ([]seen, error) {
	pipeline := s.client.Pipeline()
	var answers []*redis.Cmd
	for _, key := range keys {
		answers = append(answers, lookScript.Eval(ctx, pipeline, []string{key}))
	}
	_, _ = pipeline.Exec(ctx) // each answer has its error
	var looked []seen
	for _, answer := range answers {
		fields, err := answer.Slice()
		switch {
		case err == nil && len(fields) >= 2:
			looked = append(looked, newSeen(fields, 0))
		case kindOf(err) == KindWrongType:
			looked = append(looked, seen{leftMS: -1, found: true})
		default:
			return nil, s.record(err)
		}
	}
	return looked, s.record(nil)
}

// quarantined notes for how long the server does not vote.
func (s *server) quarantined(left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.QuarantinedUntil = time.Time{}
	if left > 0 {
		s.stats.QuarantinedUntil = time.Now().Add(left)
	}
}

// restarted is the failure of a server that does not vote.
func (s *server) restarted(left time.Duration) error {
	s.quarantined(left)
	return s.fail(KindRestarted, fmt.Errorf("it was started a short time ago and may have lost leases: it votes in %s", left))
}

// record counts a call. It returns its error as a Failure.
func (s *server) record(err error) error {
	s.mu.Lock()
	s.stats.Calls++
	s.stats.Up = err == nil
	s.mu.Unlock()
	if err == nil {
		return nil
	}
	return s.fail(kindOf(err), err)
}

// fail counts a failure, and reports one of each kind in a minute.
func (s *server) fail(kind Kind, err error) *Failure {
	failure := &Failure{s.address, kind, err}
	if report := s.note(failure); report != nil {
		report(failure)
	}
	return failure
}

// note changes the stats. It returns the function that is to be called with the failure, if any.
func (s *server) note(failure *Failure) (report func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.stats.Up = failure.Kind == KindWrongType || failure.Kind == KindRestarted
	s.stats.Errors[failure.Kind]++
	s.stats.LastError, s.stats.LastErrorAt = failure.Error(), now
	if s.onError == nil || now.Sub(s.reported[failure.Kind]) < reportEvery {
		return nil
	}
	s.reported[failure.Kind] = now
	return s.onError
}

func (s *server) reportTo(onError func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onError = onError
}

func (s *server) snapshot() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Errors = maps.Clone(s.stats.Errors)
	return stats
}
