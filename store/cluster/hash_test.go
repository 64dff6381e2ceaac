package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// TestHash checks that names have the hashes that PostgreSQL computes.
func TestHash(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	names := []string{"a", "-1", "-0", "0", "007", "9223372036854775808", "ü/x", "42/accounts/7"}
	for range 300 {
		names = append(names, strings.Repeat("x", rand.IntN(40))+fmt.Sprint(rand.Int64()), fmt.Sprint(rand.Int64()-rand.Int64()),
			fmt.Sprint(rand.IntN(2000)-1000, "/a"), uuid.NewString()+"/b")
	}
	for _, placeType := range []string{"text", "bigint", "uuid"} {
		for _, name := range names {
			var want int32
			err := b.SQL.QueryRow(t.Context(), "select fence.place_hash($1, $2)", name, placeType).Scan(&want)
			if got := hash(store.Name(name), placeType); err != nil || got != want {
				t.Errorf("the hash of %q as %s is %d, want %d; %v", name, placeType, got, want, err)
			}
		}
	}
}
