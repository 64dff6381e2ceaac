//go:build unix

package writes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
)

// opened is a rig with one layout of resources, and of the targets those that are named.
func opened(t *testing.T, names ...string) *rig {
	t.Helper()
	config := config(t)
	config.Targets = names
	report := Report{Participants: bench.NewParticipants()}
	r, err := open(t.Context(), config, &report)
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inUse opens the target for two clients.
func (r *rig) inUse(t *testing.T, target target) (session, []*writer) {
	t.Helper()
	s := setting{layout: r.layouts[0], clients: 2, connections: 2, valueBytes: r.config.ValueBytes}
	opened, err := target.open(t.Context(), s)
	if err != nil {
		t.Fatalf("%s: %v", target.name, err)
	}
	t.Cleanup(func() {
		if err := opened.close(); err != nil {
			t.Errorf("%s: %v", target.name, err)
		}
	})
	return opened, s.layout.writers(s.clients, s.valueBytes)
}

// What does not write would look fast.
func TestTargetsReallyWrite(t *testing.T) {
	r := opened(t, nameDirect, nameHandmade, nameStore, nameStoreUnfenced, nameHTTP, nameNDJSON, nameNDJSONStream)
	for _, target := range r.targets {
		read := r.reader(target)
		t.Run(target.name, func(t *testing.T) {
			session, writers := r.inUse(t, target)
			for client, w := range writers {
				// Three rounds: rows are made, then replaced. What a stream has under way is answered by later writes.
				for w.turn < 3*len(w.resources) || w.turn < 4*linesPerRequest {
					if err := session.write(t.Context(), client, w); err != nil {
						t.Fatal(err)
					}
				}
				value, err := read(t.Context(), w.resources[0])
				if err != nil {
					t.Fatal(err)
				}
				checkLatest(t, target, w, value)
			}
		})
	}
}

// checkLatest sees that the value of the first resource is the one of the client's last turn with it.
func checkLatest(t *testing.T, target target, w *writer, value []byte) {
	t.Helper()
	underWay := 0
	if target.name == nameNDJSONStream {
		underWay = streamInFlight * linesPerRequest
	}
	if len(value) != len(w.value) || !bytes.Equal(value[8:], w.value[8:]) {
		t.Fatalf("%s is %x, the client wrote %x", w.resources[0].name, value, w.value)
	}
	if turn := int(binary.LittleEndian.Uint64(value)); turn > w.turn || turn <= w.turn-len(w.resources)-underWay {
		t.Errorf("%s was written last in turn %d, of %d", w.resources[0].name, turn, w.turn)
	}
}

// reader reads what a target has written, by another way than the target's; nil for what writes nothing.
func (r *rig) reader(target target) func(ctx context.Context, of *resource) ([]byte, error) {
	fromTable := func(table string) func(context.Context, *resource) ([]byte, error) {
		return func(ctx context.Context, of *resource) (value []byte, err error) {
			err = r.control.QueryRow(ctx, "select value from "+table+" where resource = $1 and key = $2", string(of.name),
				benchKey).Scan(&value)
			return value, err
		}
	}
	switch target.name {
	case nameDirect:
		return fromTable("fencegate_bench.direct")
	case nameHandmade:
		return fromTable("fencegate_bench.records")
	case nameStore, nameHTTP, fleetName(2), nameNDJSON, nameNDJSONStream:
		return func(ctx context.Context, of *resource) ([]byte, error) {
			record, err := r.st.Record(ctx, of.name, benchKey)
			return record.Value, err
		}
	case nameStoreUnfenced:
		return r.readUnfenced
	}
	return nil
}

func (r *rig) readUnfenced(ctx context.Context, of *resource) (value []byte, err error) {
	url, err := bench.OtherDatabase(r.config.DatabaseURL, unfencedDatabase)
	if err != nil {
		return nil, err
	}
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	err = db.QueryRow(ctx, "select value from fence.records where resource = $1 and key = $2", string(of.name),
		benchKey).Scan(&value)
	return value, errors.Join(err, db.Close(ctx))
}

// What does not look at the fence would look fast.
func TestFencedTargetsRefuseStaleTokens(t *testing.T) {
	r := opened(t, nameHandmade, nameStore, nameHTTP, nameNDJSON)
	for _, target := range r.targets {
		t.Run(target.name, func(t *testing.T) {
			session, writers := r.inUse(t, target)
			if err := session.write(t.Context(), 0, writers[0]); err != nil {
				t.Fatal(err)
			}
			raise := func(by int64) {
				for _, resource := range writers[0].resources {
					resource.token += by
				}
			}
			raise(-1)
			if err := session.write(t.Context(), 0, writers[0]); err == nil {
				t.Error("a stale token was let through")
			}
			raise(+1)
		})
	}
}

// What counts as refused is.
func TestZombiesAreRefused(t *testing.T) {
	r := opened(t, nameHTTP)
	session, writers := r.inUse(t, refusedTarget(r.gatewayURL, nil))
	if err := session.write(t.Context(), 0, writers[0]); err == nil {
		t.Error("the holder's write counts as refused")
	}
	zombies, err := r.acquireZombies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := zombies.writers(1, r.config.ValueBytes)[0]
	for range zombies.resources {
		if err := session.write(t.Context(), 0, w); err != nil {
			t.Fatal(err)
		}
	}
}
