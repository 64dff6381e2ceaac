package postgres_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/storetest"
)

// TestRandomGroup submits many random writes at once, among other random things: each must be answered as the model
// answers them one by one, whatever batches they went in.
func TestRandomGroup(t *testing.T) {
	t.Parallel()
	gateway, conn := newRandomStore(t)
	group, err := groupcommit.New(gateway, groupcommit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	runs, counts := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		runs++
		r := newRandomRun(gateway, conn, fmt.Sprintf("group-%d", runs), counts)
		defer r.forgetPolicies(t)
		for _, name := range r.names {
			r.acquireOn(t, name)
		}
		submit := func(t *rapid.T) { r.submit(t, group) }
		t.Repeat(map[string]func(*rapid.T){
			"submit": submit, "submitMore": submit, "submitAgain": submit, "acquire": r.acquire, "release": r.release,
			"expire":    r.expire,
			"putPolicy": r.putPolicy, "deletePolicy": r.deletePolicy, "write": r.write, "readFence": r.readFence,
		})
		r.readAll(t)
	})
	if counts[chainCount] == 0 {
		t.Error("no chain of writes was admitted")
	}
	stats := group.Stats()
	t.Logf("outcomes %v, in %d batches of %.1f", counts, stats.Batches, float64(stats.Writes)/float64(stats.Batches))
}

type reply struct {
	result store.Result
	err    error
}

// submit draws up to forty writes, some of them in a row, some of them sent before, and sends them without waiting.
func (r *randomRun) submit(t *rapid.T, group *groupcommit.Group) {
	writes := r.drawSet(t, rapid.IntRange(1, 40), 9)
	answers := make([]chan reply, len(writes))
	for i, write := range writes {
		answers[i] = make(chan reply, 1)
		group.Submit(t.Context(), write, func(result store.Result, err error) { answers[i] <- reply{result, err} })
	}
	got := make([]storetest.Answer, len(writes))
	for i := range writes {
		reply := <-answers[i]
		if reply.err != nil {
			t.Fatal(reply.err)
		}
		got[i] = storetest.WriteAnswer(reply.result)
	}
	r.sameAnswers(t, writes, got)
}
