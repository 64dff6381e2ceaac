package postgres_test

import (
	"slices"
	"testing"
)

// TestReplayOfALockedFence checks that a replay is answered once while its fence is locked, and is not put off as well.
func TestReplayOfALockedFence(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	const write = `select admitted, replayed, busy
		from fence.write(array['lock'], array[$1::bigint], array[$2::bigint], array[null::uuid], array['\x01'::bytea],
			array['put'], array['k'], array['v'::bytea], array['text/plain'], array[null::bigint], array[1], $3)`
	s.Exec(t, write, s.newest().Token, 1, nil)
	s.hold(t, "select from fence.fences for update")
	for sequence, want := range map[int][3][]int32{1: {{1}, {1}, nil}, 2: {nil, nil, {1}}} {
		var got [3][]int32
		err := s.SQL.QueryRow(t.Context(), write, s.newest().Token, sequence, 0).Scan(&got[0], &got[1], &got[2])
		if err != nil || !slices.EqualFunc(got[:], want[:], slices.Equal[[]int32]) {
			t.Errorf("with sequence %d the answer is %v (%v), want %v", sequence, got, err, want)
		}
	}
}

// TestReplayWaitsForStandbys checks that the transaction of a replay has something to commit, so that its answer waits
// for the disk and the standbys.
func TestReplayWaitsForStandbys(t *testing.T) {
	t.Parallel()
	s := newFixture(t, acquire)
	const write = `select verdict from fence.write_one(
		'lock', $1, 1, null, '\x01', 'put', 'k', 'v', 'text/plain', null, null)`
	s.Exec(t, write, s.newest().Token)
	tx := s.begin(t)
	var verdict string
	if err := tx.QueryRow(t.Context(), write, s.newest().Token).Scan(&verdict); err != nil || verdict != "admitted" {
		t.Fatalf("the replay is %q (%v)", verdict, err)
	}
	var commits bool
	err := tx.QueryRow(t.Context(), "select pg_current_xact_id_if_assigned() is not null").Scan(&commits)
	if err != nil || !commits {
		t.Errorf("the transaction of the replay commits something: %v (%v)", commits, err)
	}
}
