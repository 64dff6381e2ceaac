// Package jwks holds the public keys of an issuer of tokens in memory (a JSON Web Key Set, RFC 7517), and reads them
// again as the issuer changes them. No request waits for a reading.
package jwks

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/oauth2"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/gateway/auth/oidc"
)

const (
	// Interval is the time between two readings: for so long a key may be accepted that the issuer has withdrawn.
	Interval = time.Minute
	// RetryInterval is the time from one reading to the next, at least, whatever tokens are shown.
	RetryInterval = 10 * time.Second
	// fileInterval is both for a file.
	fileInterval = 2 * time.Second

	keysMax     = 100
	rsaBitsMin  = 2048
	keyIDMax    = 256 // bytes
	missingKept = 256 // IDs of keys that the issuer does not have
	// pendingMax is how many unknown IDs may await the next reading. Anyone can make up IDs, and each that awaits one is
	// answered as a failure of the gateway.
	pendingMax = 8
)

// Why there is no key.
var (
	ErrUnknown  = errors.New("the issuer does not have this key")
	ErrNotReady = errors.New("the keys of the issuer were not read yet")
)

// Keys are the keys of one issuer. They are safe for concurrent use.
type Keys struct {
	issuer  string
	from    accessfile.Source
	current atomic.Pointer[reading] // nil: none was read yet
	wake    chan struct{}
	missing *lru.Cache[string, time.Time] // when a key was first asked for that is not there

	interval, retryInterval time.Duration
}

// reading is what was read last. It does not change.
type reading struct {
	began    time.Time
	endpoint *oauth2.Endpoint // nil: the keys are where the file says
	text     []byte
	set      *Set
}

// New returns the keys of an issuer. There are none until Run runs.
func New(issuer string, from accessfile.Source) *Keys {
	missing, _ := lru.New[string, time.Time](missingKept) // fails for a size below 1
	k := &Keys{
		issuer: issuer, from: from, wake: make(chan struct{}, 1), missing: missing,
		interval: Interval, retryInterval: RetryInterval,
	}
	if from.JWKSFile != "" {
		k.interval, k.retryInterval = fileInterval, fileInterval
	}
	return k
}

// Are reports whether these are the keys of this issuer, read from there.
func (k *Keys) Are(issuer string, from accessfile.Source) bool {
	return k.issuer == issuer && k.from == from
}

// Set returns the current keys; nil: none were read yet. It is the same until they change.
func (k *Keys) Set() *Set {
	if current := k.current.Load(); current != nil {
		return current.set
	}
	return nil
}

// Endpoint returns the endpoints in the discovery document that has led to the current keys; nil: none was read.
func (k *Keys) Endpoint() *oauth2.Endpoint {
	if current := k.current.Load(); current != nil {
		return current.endpoint
	}
	return nil
}

// Find returns the keys with this ID, of which there is almost always one, and the Set that has them. An ID that is not
// there makes Run read the keys again; until it has, Find returns ErrNotReady, and then ErrUnknown. While pendingMax IDs
// await that, Find returns ErrUnknown for others.
func (k *Keys) Find(id string) (*Set, []jose.JSONWebKey, error) {
	if len(id) > keyIDMax {
		return nil, nil, ErrUnknown
	}
	current := k.current.Load()
	if current == nil {
		return nil, nil, ErrNotReady
	}
	if found := current.set.find(id); found != nil {
		return current.set, found, nil
	}
	select {
	case k.wake <- struct{}{}:
	default: // it will
	}
	asked, known := k.missing.Peek(id)
	if known && current.began.After(asked) || !known && k.pending(current) >= pendingMax {
		return nil, nil, ErrUnknown
	}
	if !known {
		k.missing.Add(id, time.Now())
	}
	return nil, nil, ErrNotReady
}

// pending returns how many missing IDs were asked for since the keys were read.
func (k *Keys) pending(current *reading) (count int) {
	for _, asked := range k.missing.Values() {
		if !current.began.After(asked) {
			count++
		}
	}
	return count
}

// Run reads the keys until ctx ends, and reports the result of each reading. While they can't be read, the former ones
// stay.
func (k *Keys) Run(ctx context.Context, report func(error)) {
	for ctx.Err() == nil {
		select {
		case <-k.wake: // what was asked for until now is looked for now
		default:
		}
		err := k.Reload(ctx)
		if ctx.Err() != nil {
			return
		}
		report(err)
		k.pause(ctx, err != nil)
	}
}

// pause waits for the retry interval, and then for the rest of the interval unless a key was missed, or the last
// reading has failed.
func (k *Keys) pause(ctx context.Context, failed bool) {
	retry, regular := time.NewTimer(k.retryInterval), time.NewTimer(k.interval)
	defer retry.Stop()
	defer regular.Stop()
	select {
	case <-ctx.Done():
		return
	case <-retry.C:
	}
	if failed {
		return
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-regular.C:
	}
}

// Reload reads the keys.
func (k *Keys) Reload(ctx context.Context) error {
	next := &reading{began: time.Now()}
	if err := next.fetch(ctx, k.issuer, k.from); err != nil {
		return err
	}
	if former := k.current.Load(); former != nil && bytes.Equal(former.text, next.text) {
		next.set = former.set
	} else {
		var err error
		if next.set, err = Parse(next.text); err != nil {
			return err
		}
	}
	k.current.Store(next)
	return nil
}

// fetch reads the key set of an issuer as it is now.
func (r *reading) fetch(ctx context.Context, issuer string, from accessfile.Source) (err error) {
	if from.JWKSFile != "" {
		r.text, err = os.ReadFile(from.JWKSFile)
		return err
	}
	client, err := oidc.NewClient(from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, oidc.Timeout)
	defer cancel()
	address := from.JWKSURL
	if address == "" {
		if address, r.endpoint, err = client.Discover(ctx, issuer); err != nil {
			return err
		}
	}
	r.text, err = client.Get(ctx, address)
	return err
}

// Set has the keys by which signatures may be checked. It does not change.
type Set struct{ keys map[string][]jose.JSONWebKey }

// Parse reads a JSON Web Key Set. It leaves out keys that are not for signatures, that are no public keys, or of which
// it does not know the type.
func Parse(text []byte) (*Set, error) {
	var read struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("the key set can't be read: %w", err)
	}
	if len(read.Keys) > keysMax {
		return nil, fmt.Errorf("the key set has %d keys, the limit is %d", len(read.Keys), keysMax)
	}
	set := &Set{map[string][]jose.JSONWebKey{}}
	for _, one := range read.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(one, &key) == nil && isUsable(key) {
			set.keys[key.KeyID] = append(set.keys[key.KeyID], key)
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("the key set has no usable key")
	}
	return set, nil
}

func isUsable(key jose.JSONWebKey) bool {
	if public, ok := key.Key.(*rsa.PublicKey); ok && public.N.BitLen() < rsaBitsMin {
		return false
	}
	return key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig")
}

// find returns the keys with this ID. Without an ID it returns the only key, if there is only one.
func (s *Set) find(id string) []jose.JSONWebKey {
	if id == "" && len(s.keys) == 1 {
		for _, keys := range s.keys {
			return keys
		}
	}
	return s.keys[id]
}
