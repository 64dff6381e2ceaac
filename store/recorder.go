package store

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

const (
	// recorderStoriesMax bounds the memory of a Recorder: about 1 KiB a story.
	recorderStoriesMax = 10_000
	recorderInterval   = 100 * time.Millisecond
	recorderRepeat     = time.Second
	recorderTimeout    = 5 * time.Second
)

// Recorder writes rejections to the record in the background: it never delays a verdict and never changes one. Those alike
// (resource, token, verdict, reason, door and address the same) are one story with a count, in memory and in the database.
// When more than 10,000 stories wait, new ones are dropped and counted.
type Recorder struct {
	store      *Store
	onRecorded func([]Recorded)

	mu      sync.Mutex
	stories map[story]*Rejection
	written map[story]time.Time // when, of the last second
	dropped uint64
}

type story struct {
	resource      Name
	verdict       Verdict
	token         int64
	reason        string
	door, address string
}

// NewRecorder returns a Recorder that waits to be Run.
func NewRecorder(store *Store) *Recorder {
	return &Recorder{store: store, stories: map[story]*Rejection{}, written: map[story]time.Time{}}
}

// OnRecorded has told be called after each writing with what was written. It is set before Run.
func (r *Recorder) OnRecorded(told func([]Recorded)) { r.onRecorded = told }

// Record notes a rejection. Its time is the gateway's clock: it decides nothing. Record does no I/O.
func (r *Recorder) Record(rejected *RejectedError, door, address string) {
	now := time.Now()
	key := story{rejected.Resource, rejected.Verdict, rejected.Token, rejected.Reason, door, address}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.stories[key]
	if seen == nil {
		if len(r.stories) >= recorderStoriesMax {
			r.dropped++
			return
		}
		seen = &Rejection{
			Resource: rejected.Resource, Verdict: rejected.Verdict, Reason: rejected.Reason,
			Door: door, Address: address, Token: rejected.Token, FirstAt: now,
		}
		r.stories[key] = seen
	}
	seen.Key, seen.Sequence = rejected.Key, rejected.Sequence
	seen.GrantedToken, seen.LastToken, seen.LastSequence = rejected.GrantedToken, rejected.LastToken, rejected.LastSequence
	seen.LastAt = now
	seen.Count++
}

// Dropped returns how many rejections were not recorded because too many waited.
func (r *Recorder) Dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Run writes what was noted every 100 ms until ctx ends, and then once more; a story that goes on once a second, since zombies that hammer
// would keep the database busy with their counts. What can't be written is kept for the next time; onError is told.
func (r *Recorder) Run(ctx context.Context, onError func(error)) {
	ticker := time.NewTicker(recorderInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if err := r.flush(context.WithoutCancel(ctx), r.take(0)); err != nil {
				onError(err)
			}
			return
		}
		if err := r.flush(ctx, r.take(recorderRepeat)); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// take takes the stories out that were not written within so long.
func (r *Recorder) take(repeat time.Duration) map[story]*Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.written, func(_ story, at time.Time) bool { return now.Sub(at) >= repeat })
	taken := map[story]*Rejection{}
	for key, rejection := range r.stories {
		if _, lately := r.written[key]; !lately {
			taken[key] = rejection
			delete(r.stories, key)
			r.written[key] = now
		}
	}
	return taken
}

func (r *Recorder) flush(ctx context.Context, stories map[story]*Rejection) error {
	if len(stories) == 0 {
		return nil
	}

	rejections := make([]Rejection, 0, len(stories))
	for _, rejection := range stories {
		rejections = append(rejections, *rejection)
	}
	ctx, cancel := context.WithTimeout(ctx, recorderTimeout)
	defer cancel()
	var recorded []Recorded
	err := r.store.tracing.do(ctx, "record rejections", func(ctx context.Context) (err error) {
		recorded, err = r.store.recordRejections(ctx, rejections)
		return err
	}, func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.Int("fencegate.stories", len(rejections))}
	})
	if err != nil {
		r.store.again(err)
		r.keep(stories)
		return err
	}
	if r.onRecorded != nil {
		r.onRecorded(recorded)
	}
	return nil
}

// keep puts stories back that could not be written, beside what was noted meanwhile.
func (r *Recorder) keep(stories map[story]*Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, old := range stories {
		delete(r.written, key)
		newer := r.stories[key]
		switch {
		case newer != nil:
			newer.Count += old.Count
			newer.FirstAt = old.FirstAt
		case len(r.stories) < recorderStoriesMax:
			r.stories[key] = old
		default:
			r.dropped += uint64(old.Count)
		}
	}
}
