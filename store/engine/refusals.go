package engine

import (
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/fencegate/fencegate/store"
)

const (
	// defaultRefusalsRemembered bounds the memory of refusals: 20 MiB where names have 40 bytes, 70 MiB where they have
	// 512.
	defaultRefusalsRemembered = 100_000
	refusalsRememberedMax     = 10_000_000
	// refusalShardsMax bounds the shards: a lookup holds the lock of one shard for some 50 ns.
	refusalShardsMax = 64
	// refusalShardMin is how many resources a shard should have room for, so that busy ones do not push each other out.
	refusalShardMin = 64
)

// Refusals is the memory of writes that the rule rejected as superseded. Its answers are certain, for a fence only
// rises: the rule would reject such a write again, and every one with a lower token. It refuses, and never admits; the
// database decides all other writes.
//
// A superseded write becomes admissible only if the policies change (another lock service issues the tokens of the name
// from now on), an administrator sets such a fence (postgres.Store.SetFence), or the database is another one. So
// Refusals forgets everything when the database notifies of a changed policy or a set fence, and is not used while
// notifications could be missed. It does not learn verdicts on writes sent before that.
type Refusals struct {
	seed   maphash.Seed
	shards []refusalShard // empty: nothing is remembered

	valid      atomic.Bool
	generation atomic.Uint64 // raised before all is forgotten
	refused    atomic.Uint64
}

// refusalShard has the fences of some resources. It forgets the least recently used first.
type refusalShard struct {
	mu     sync.Mutex
	fences *simplelru.LRU[store.Name, refused]
	_      [48]byte // a cache line of its own
}

// refused says which writes to a resource are rejected for good.
type refused struct {
	below int64 // those with a lower token, but for a retry of the last accepted write
	// lastKnown says that every accepted write with such a token is known here. Otherwise, only writes without a
	// sequence are certainly no retry.
	lastKnown bool

	granted, last, lastSequence int64 // the fence as it was seen
}

// consulted is what was remembered when a write was sent.
type consulted struct {
	generation uint64
	below      int64 // 0: nothing of its resource
}

func newRefusals(rememberedMax int) *Refusals {
	r := &Refusals{seed: maphash.MakeSeed()}
	if rememberedMax == 0 {
		return r
	}
	shards := refusalShardsMax
	for shards > 1 && rememberedMax/shards < refusalShardMin {
		shards /= 2
	}
	r.shards = make([]refusalShard, shards)
	for i := range r.shards {
		fences, err := simplelru.NewLRU[store.Name, refused](rememberedMax/shards, nil)
		if err != nil {
			panic(err) // of a size below 1
		}
		r.shards[i].fences = fences
	}
	return r
}

func (r *Refusals) shard(resource store.Name) *refusalShard {
	return &r.shards[maphash.String(r.seed, string(resource))&uint64(len(r.shards)-1)]
}

// consult returns the rejection of a write that is certainly superseded; or nil, and what learn needs after its
// verdict.
func (r *Refusals) consult(write *store.Write) (*store.RejectedError, consulted) {
	now := consulted{generation: r.generation.Load()}
	if len(r.shards) == 0 || !r.valid.Load() {
		return nil, now
	}
	shard := r.shard(write.Resource)
	shard.mu.Lock()
	out, ok := shard.fences.Get(write.Resource)
	shard.mu.Unlock()
	if !ok {
		return nil, now
	}
	now.below = out.below
	if !out.refuses(write.WriteToken) {
		return nil, now
	}
	return &store.RejectedError{
		Verdict: store.VerdictTokenStale, Reason: store.Superseded, Resource: write.Resource, Key: write.Key,
		Token: write.Token, Sequence: write.Sequence,
		GrantedToken: out.granted, LastToken: out.last, LastSequence: out.lastSequence, Remembered: true,
	}, now
}

// learn remembers the verdict of the database on a write, if it is one to remember.
func (r *Refusals) learn(was consulted, verdict error) {
	if verdict == nil || len(r.shards) == 0 || !r.valid.Load() {
		return
	}
	var rejected *store.RejectedError
	if !errors.As(verdict, &rejected) ||
		rejected.Verdict != store.VerdictTokenStale || rejected.Reason != store.Superseded {
		return
	}
	out := refusedBy(rejected, was)
	shard := r.shard(rejected.Resource)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if r.generation.Load() != was.generation {
		return
	}
	known, ok := shard.fences.Peek(rejected.Resource)
	if !ok || out.below > known.below || out.below == known.below && (out.lastKnown || !known.lastKnown) {
		// The name may be a part of a whole request, which must not be kept for it.
		shard.fences.Add(store.Name(strings.Clone(string(rejected.Resource))), out)
	}
}

// refusedBy returns the consequences of a verdict of superseded, whichever service issues the tokens.
func refusedBy(rejected *store.RejectedError, was consulted) refused {
	out := refused{
		below: rejected.Token + 1, lastKnown: true,
		granted: rejected.GrantedToken, last: rejected.LastToken, lastSequence: rejected.LastSequence,
	}
	if rejected.Token < rejected.LastToken {
		// By step 4, or by step 3. A token that was never granted is not superseded, but unknown.
		out.below = max(out.below, min(rejected.LastToken, rejected.GrantedToken+1))
	} else {
		// By step 3, which is judged only where the tokens are our own.
		out.below = max(out.below, rejected.GrantedToken)
	}
	if rejected.LastToken == 0 {
		// Either nothing was accepted yet, or the fence was made while the write was judged and not seen (fence.admit). A
		// write that is sent after these tokens were rejected sees what was accepted before.
		out.lastKnown = was.below >= out.below
	}
	return out
}

// refuses reports whether a write with the token is certainly superseded.
func (o refused) refuses(token store.WriteToken) bool {
	switch {
	case token.Token <= 0 || token.Token >= o.below:
		return false
	case token.Sequence == nil:
		return true
	}
	return o.lastKnown && (token.Token != o.last || *token.Sequence != o.lastSequence)
}

// forget drops everything that is remembered, and what is being learned.
func (r *Refusals) forget() {
	r.generation.Add(1)
	for i := range r.shards {
		shard := &r.shards[i]
		shard.mu.Lock()
		shard.fences.Purge()
		shard.mu.Unlock()
	}
}

// validate begins to remember: from now on every change of policies is notified.
func (r *Refusals) validate() {
	r.forget()
	r.valid.Store(true)
}

// invalidate stops remembering: a notification could be missed.
func (r *Refusals) invalidate() {
	r.valid.Store(false)
	r.forget()
}

// len returns how many resources are remembered.
func (r *Refusals) len() (n int) {
	for i := range r.shards {
		shard := &r.shards[i]
		shard.mu.Lock()
		n += shard.fences.Len()
		shard.mu.Unlock()
	}
	return n
}

// Refuses reports whether a write would be refused without the database.
func (r *Refusals) Refuses(write store.Write) bool {
	rejected, _ := r.consult(&write)
	return rejected != nil
}

// Forgotten returns how often all was forgotten.
func (r *Refusals) Forgotten() uint64 { return r.generation.Load() }
