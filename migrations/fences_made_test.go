package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// TestFencesOfOneRole checks that a role that acquires ever new names by SQL is refused in the end, that it still
// acquires names that have a fence, and that another role makes new ones.
func TestFencesOfOneRole(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	owner, greedy := connect(t, url), makeRole(t, url, "greedy")
	if err := migrations.Grant(t.Context(), owner, migrations.Roles{App: []string{greedy}}); err != nil {
		t.Fatal(err)
	}
	acquire := func(name string) error {
		_, err := owner.Exec(t.Context(), "select fence.acquire($1, 'w')", name)
		return err
	}
	exec(t, owner, "insert into fence.fences_made select $1, false from generate_series(1, 15624)", greedy)
	exec(t, owner, "set session authorization "+quote(greedy))
	var err error
	const most = 3000 // one in 64 counts
	made := 0
	for ; made < most && err == nil; made++ {
		err = acquire(fmt.Sprint("new/", made))
	}
	if err == nil || !strings.Contains(err.Error(), "LF007") {
		t.Fatalf("after %d names the role got %v, want LF007", made, err)
	}
	exec(t, owner, "select fence.acquire('new/0', 'another')")
	exec(t, owner, "reset session authorization")
	exec(t, owner, "select fence.acquire('another', 'w')")
}
