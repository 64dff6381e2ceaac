package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// explained are the files of migrations/guard all of whose survivors equivalent.txt explains.
var explained = []string{"rule/rule.sql", "write/write_one.sql"}

// TestSlow_Mutants breaks the functions in fifteen places, others each day, and checks that a case notices. All the
// survivors of a longer run are explained: `make mutants` shows them.
func TestSlow_Mutants(t *testing.T) {
	t.Chdir("../../..")
	sample := command{sample: 15, seed: uint64(time.Now().Unix() / 86400)}
	places, err := sample.choose(slices.DeleteFunc(all(), func(p *place) bool {
		return p.equivalent != "" || !slices.Contains(explained, strings.TrimPrefix(p.file, "migrations/guard/"))
	}))
	if err != nil || len(places) < sample.sample {
		t.Fatalf("the sample has %d places: %v", len(places), err)
	}
	if err := judgeSQL(t.Context(), places, judges, true); err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		if p.survives() {
			t.Errorf("nothing notices %s", p)
		}
	}
}
