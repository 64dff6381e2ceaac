package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/store"
)

// unusedCases are about what sweeps delete of the names below the lock that wait to be judged.
var unusedCases = []storeCase{
	{"unused: a name whose time has come, and another", all(unused("/due", "/later"),
		execute("update fence.unused set check_at = clock_timestamp() + interval '1 hour' where name = $1 || '/later'"),
		sweepUnused(10, 1, false), left("fence /later, subtree /later, unused /later"))},
	{"unused: the oldest, when there are too many", all(unused("/1", "/2", "/3"),
		execute("update fence.unused set check_at = 'epoch' where name <> $1 || '/1'"),
		sweepUnused(2, 2, true), left("fence /1, subtree /1, unused /1"), sweepUnused(2, 1, false), left(""))},
	{"unused: one that was granted", keptUnused("update fence.fences set granted_token = 1 where resource = $1 || '/x'")},
	{"unused: one whose last write had a token",
		keptUnused("update fence.fences set last_token = 1 where resource = $1 || '/x'")},
	{"unused: one that has had a record",
		keptUnused("update fence.fences set last_version = 1 where resource = $1 || '/x'")},
	{"unused: one whose subtree was granted", all(unused("/x"),
		execute("update fence.fences set granted_token = 1, subtree_token = 1 where resource = $1 || '/x'"),
		sweepUnused(10, 0, false), left("fence /x, subtree /x"))},
	{"unused: one whose subtree was requested, and that was granted", all(unused("/x"),
		execute("update fence.fences set granted_token = 1 where resource = $1 || '/x'"),
		sweepUnused(10, 0, false), left("fence /x"))},
	{"unused: one that has a waiter", all(unused("/x", "/y"),
		waiter("/x", "exclusive", "node", time.Hour), laterUnused)},
	{"unused: one whose fence is locked", all(unused("/x", "/y"),
		beside(lockFenceSQL, "/x", laterUnused))},
	{"unused: one that another sweep has locked", all(unused("/x"),
		beside("select from fence.unused where name = $1 for update", "/x", sweepUnused(10, 0, false)),
		left("fence /x, subtree /x, unused /x"))},
	{"unused: an external fence that was set to nothing", all(external,
		execute("select fence.set_fence($1, 0, 0)"), left("fence , unused "))},
	{"unused: an external fence that was made for a write that was rejected",
		all(external, rejected(with(token(7), expect(1)), "version_mismatch"), left("fence , unused "))},
	{"unused: none is made for a write without a token", all(external, rejected(with(none), "token_required"), left(""))},
	{"unused: names are noted in one order", func(ctx context.Context, s *fixture) error {
		const note = "select fence.note_unused(array[$1 || '/2', $1 || '/1'])"
		return s.whileLocked(ctx, executing(ctx, "select fence.note_unused(array[$1 || '/1'])", s.lock),
			func() error { return execute(note)(ctx, s) },
			executing(ctx, "select fence.note_unused(array[$1 || '/2'])", s.lock))
	}},
}

// unused makes the rows of names below, whose time has come.
func unused(suffixes ...string) step {
	return func(ctx context.Context, s *fixture) error {
		_, err := s.SQL.Exec(ctx, `
			with forgotten as (delete from fence.unused),
				names as (select $1 || u as name from unnest($2::text[]) u),
				fences as (insert into fence.fences (resource, subtree_token) select name, 0 from names)
			insert into fence.unused (name, check_at) select name, '2000-01-01' from names`, s.lock, suffixes)
		return err
	}
}

func sweepUnused(rowsMax, done int, more bool) step {
	return func(ctx context.Context, s *fixture) error {
		var got string
		err := s.SQL.QueryRow(ctx, "select format('%s %s', coalesce(done, 0), coalesce(more, false)) from fence.sweep_unused($1)",
			rowsMax).Scan(&got)
		if want := fmt.Sprintf("%d %.1s", done, strconv.FormatBool(more)); err == nil && got != want {
			err = fmt.Errorf("the sweep returned %s, want %s", got, want)
		}
		return err
	}
}

// left compares the rows that are kept of the names below, without the name of the lock.
func left(want string) step {
	return func(ctx context.Context, s *fixture) error {
		var got string
		err := s.SQL.QueryRow(ctx, "select replace(("+leftSQL+" where starts_with(name, $1)), $1, '')", s.lock).Scan(&got)
		if err == nil && got != want {
			err = fmt.Errorf("what is left is %q, want %q", got, want)
		}
		return err
	}
}

// keptUnused expects that a fence stays, and is not looked at again, after a statement.
func keptUnused(sql string) step {
	return all(unused("/x"), execute(sql), sweepUnused(10, 0, false), left("fence /x"))
}

// laterUnused expects that the name x is looked at again in a minute, and y is deleted.
func laterUnused(ctx context.Context, s *fixture) error {
	return s.do(ctx, sweepUnused(10, 1, false), left("fence /x, subtree /x, unused /x"), sweepUnused(10, 0, false),
		execute("select 1 / count(*) from fence.unused where name = $1 || '/x' and "+
			"check_at between clock_timestamp() + interval '50 s' and clock_timestamp() + interval '1 minute'"))
}

// beside does a step while another transaction has locked something of a name below. It must not wait.
func beside(lockSQL string, suffix store.Name, do step) step {
	return func(ctx context.Context, s *fixture) error {
		tx, err := s.SQL.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has only locked
		if _, err := tx.Exec(ctx, lockSQL, s.lock+suffix); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		return do(ctx, s)
	}
}
