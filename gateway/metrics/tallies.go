package gateway

import (
	"maps"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
)

// tallies are a histogram by code, to which many writes are added at once: a zombie that hammers is seen once a second, with the number of its
// writes. It is safe for concurrent use.
type tallies struct {
	of *family

	mu     sync.Mutex
	byCode map[string]*tally // those of the label
}

type tally struct {
	count uint64
	sum   float64
	upTo  map[float64]uint64 // by bucket, with what is in the lower ones
}

func newTallies(of *family) *tallies {
	t := &tallies{of: of, byCode: map[string]*tally{}}
	for _, code := range of.labels[0].values {
		upTo := map[float64]uint64{}
		for _, bound := range of.buckets {
			upTo[bound] = 0
		}
		t.byCode[code] = &tally{upTo: upTo}
	}
	return t
}

// add counts writes that were all of one duration; nil: it is not known.
func (t *tallies) add(verdict store.Verdict, duration *time.Duration, writes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := t.byCode[string(verdict)]
	if to == nil || duration == nil {
		return
	}
	seconds := duration.Seconds()
	to.count += uint64(writes)
	to.sum += seconds * float64(writes)
	for bound := range to.upTo {
		if seconds <= bound {
			to.upTo[bound] += uint64(writes)
		}
	}
}

// show copies the buckets: what a reading was given stays as it was.
func (t *tallies) show(to *readings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for code, one := range t.byCode {
		to.histogram(t.of, one.count, one.sum, maps.Clone(one.upTo), code)
	}
}
