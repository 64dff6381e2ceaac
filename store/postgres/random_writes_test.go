package postgres_test

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// writeToken draws a token for the name: mostly one that could be admitted.
func (r *randomRun) writeToken(t *rapid.T, name store.Name) store.WriteToken {
	resource := r.model.Resource(name)
	granted, leaseID := r.model.Granted(name)
	token := store.WriteToken{Resource: name}
	switch rapid.SampledFrom([]string{"newest", "newest", "newest", "newest", "last", "other", "none", "near",
		"far"}).Draw(t, "token") {
	case "newest":
		token.Token = granted
	case "last":
		token.Token = resource.LastToken
	case "other":
		if len(r.leases) > 0 {
			token.Token = r.someLease(t).Token
		}
	case "near":
		token.Token = max(0, max(granted, resource.LastToken)+rapid.Int64Range(-1, 2).Draw(t, "off"))
	case "far":
		token.Token = max(granted, resource.LastToken) + rapid.Int64Range(10, 10_000).Draw(t, "off")
	}
	if rapid.IntRange(0, 3).Draw(t, "numbered") > 0 {
		number := max(0, resource.LastSequence+rapid.Int64Range(-1, 3).Draw(t, "sequence"))
		token.Sequence = &number
	}
	switch rapid.SampledFrom([]string{"none", "own", "own", "wrong"}).Draw(t, "lease_id") {
	case "own":
		token.LeaseID = &leaseID
	case "wrong":
		id := uuid.NewSHA1(leaseID, nil)
		token.LeaseID = &id
	}
	return token
}

// operation draws an operation on one of few records, with one of few contents, so that they often meet.
func (r *randomRun) operation(t *rapid.T, name store.Name) store.Operation {
	op := store.Operation{
		Kind: rapid.SampledFrom([]store.Kind{store.Put, store.Put, store.Delete}).Draw(t, "kind"),
		Key:  rapid.SampledFrom([]store.Name{"k", "k/l"}).Draw(t, "key"),
	}
	if op.Kind == store.Put {
		op.Value = rapid.SampledFrom([][]byte{nil, []byte("v"), {0, 255}}).Draw(t, "value")
		op.ContentType = rapid.SampledFrom([]string{"text/plain", "application/octet-stream"}).Draw(t, "type")
	}
	version := r.model.Resource(name).Record(op.Key).Version
	switch rapid.SampledFrom([]string{"no matter", "no matter", "none", "any", "right", "wrong"}).Draw(t, "expect") {
	case "none":
		op.Expect = new(store.ExpectNone)
	case "any":
		op.Expect = new(store.ExpectAny)
	case "right":
		op.Expect = new(version)
	case "wrong":
		op.Expect = new(version + 1)
	}
	return op
}

func (r *randomRun) write(t *rapid.T) { r.send(t, []store.Write{r.draw(t)}) }

func (r *randomRun) draw(t *rapid.T) store.Write {
	name := r.name(t)
	return store.Write{WriteToken: r.writeToken(t, name), Operation: r.operation(t, name)}
}

// writeAgain sends a write that was sent before.
func (r *randomRun) writeAgain(t *rapid.T) {
	if len(r.writes) == 0 {
		t.Skip("nothing was written")
	}
	r.send(t, []store.Write{r.sentBefore(t)})
}

func (r *randomRun) sentBefore(t *rapid.T) store.Write {
	back := rapid.IntRange(0, min(len(r.writes)-1, 3)).Draw(t, "back")
	return r.writes[len(r.writes)-1-back]
}

func (r *randomRun) writeSet(t *rapid.T) {
	r.send(t, r.drawSet(t, rapid.IntRange(2, 6), 4))
}

// drawSet draws writes, one in so many of them sent before, some of them in a row; or those of holders.
func (r *randomRun) drawSet(t *rapid.T, count *rapid.Generator[int], again int) []store.Write {
	writes := make([]store.Write, count.Draw(t, "writes"))
	if rapid.IntRange(0, 2).Draw(t, "by holders") == 0 {
		r.drawChains(t, writes)
		return writes
	}
	for i := range writes {
		if len(r.writes) > 0 && rapid.IntRange(0, again).Draw(t, "again") == 0 {
			writes[i] = r.sentBefore(t)
		} else {
			writes[i] = r.draw(t)
		}
	}
	if rapid.Bool().Draw(t, "in a row") {
		number(writes)
	}
	return writes
}

// drawChains draws what holders of one or two names send that number their writes: puts of few keys, in their order.
// Some sets have a write that is drawn like any other, or an unnumbered one.
func (r *randomRun) drawChains(t *rapid.T, writes []store.Write) {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(r.names), 1, 2, rapid.ID[store.Name]).Draw(t, "names")
	for i := range writes {
		name := rapid.SampledFrom(names).Draw(t, "name")
		writes[i] = store.Write{WriteToken: r.next(name), Operation: store.Operation{
			Kind: store.Put, Key: rapid.SampledFrom([]store.Name{"k", "k/l"}).Draw(t, "key"),
			Value: fmt.Append(nil, i), ContentType: "text/plain",
		}}
		writes[i].LeaseID = nil
	}
	number(writes)
	odd := &writes[rapid.IntRange(0, len(writes)-1).Draw(t, "odd")]
	switch rapid.SampledFrom([]string{"none", "none", "none", "any", "unnumbered", "all unnumbered"}).Draw(t, "which") {
	case "any":
		*odd = store.Write{WriteToken: r.writeToken(t, odd.Resource), Operation: r.operation(t, odd.Resource)}
	case "unnumbered":
		odd.Sequence = nil
	case "all unnumbered":
		for i := range writes {
			writes[i].Sequence = nil
		}
	}
}

// chainCount is the entry of randomRun.counts for admitted puts, with nothing but a token, of a set that has several to
// each resource.
const chainCount = "puts in chains"

// countChains counts what fence.write_chains can decide.
func (r *randomRun) countChains(writes []store.Write, answers []storetest.Answer) {
	others := map[store.Name]bool{}
	for i, write := range writes {
		odd := write.Kind != store.Put || write.LeaseID != nil || write.Expect != nil ||
			answers[i].Code != storetest.CodeAdmitted || answers[i].Replayed
		others[write.Resource] = others[write.Resource] || odd
	}
	if len(writes) < 2*len(others) {
		return
	}
	for _, write := range writes {
		if !others[write.Resource] {
			r.counts[chainCount]++
		}
	}
}

// number gives writes to one resource under one token numbers that rise, so that many of a set are admitted.
func number(writes []store.Write) {
	last := map[store.Name]int64{}
	for i, write := range writes {
		if write.Sequence != nil {
			last[write.Resource] = max(last[write.Resource]+1, *write.Sequence)
			writes[i].Sequence = new(last[write.Resource])
		}
	}
}

// send sends a set of writes; the model decides them one by one.
func (r *randomRun) send(t *rapid.T, writes []store.Write) {
	results, err := r.gateway.Write(t.Context(), writes)
	if err != nil {
		t.Fatal(err)
	}
	answers := make([]storetest.Answer, len(writes))
	for i, result := range results {
		answers[i] = storetest.WriteAnswer(result)
	}
	r.sameAnswers(t, writes, answers)
}

// sameAnswers compares the answers to a set of writes with those of the model.
func (r *randomRun) sameAnswers(t *rapid.T, writes []store.Write, answers []storetest.Answer) {
	for i, write := range writes {
		next, want := r.model.Write(write)
		r.same(t, fmt.Sprintf("%d of %d: %s", i+1, len(writes), historyCall{write: &write}), answers[i], want)
		r.model = next
	}
	r.countChains(writes, answers)
	r.writes = append(r.writes, writes...)
}

func (r *randomRun) transact(t *rapid.T) {
	var transaction store.Transaction
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(r.names), 1, len(r.names), rapid.ID[store.Name]).Draw(t, "names")
	for _, name := range names {
		transaction.Tokens = append(transaction.Tokens, r.writeToken(t, name))
	}
	for range rapid.IntRange(1, 4).Draw(t, "operations") {
		name := rapid.SampledFrom(names).Draw(t, "of")
		op := store.ResourceOperation{Resource: name, Operation: r.operation(t, name)}
		twice := slices.ContainsFunc(transaction.Operations, func(other store.ResourceOperation) bool {
			return other.Resource == op.Resource && other.Key == op.Key
		})
		if !twice {
			transaction.Operations = append(transaction.Operations, op)
		}
	}
	r.transactions = append(r.transactions, transaction)
	r.commit(t, transaction)
}

func (r *randomRun) transactAgain(t *rapid.T) {
	if len(r.transactions) == 0 {
		t.Skip("nothing was transacted")
	}
	back := rapid.IntRange(0, min(len(r.transactions)-1, 2)).Draw(t, "back")
	r.commit(t, r.transactions[len(r.transactions)-1-back])
}

// transactAndWrite sends a transaction over two resources as it should be, then a write to one of them, and then the
// transaction again: on one fence it is a retry, on the other it comes too late.
func (r *randomRun) transactAndWrite(t *rapid.T) {
	var transaction store.Transaction
	for _, name := range r.names[:2] {
		transaction.Tokens = append(transaction.Tokens, r.next(name))
		transaction.Operations = append(transaction.Operations,
			store.ResourceOperation{Resource: name, Operation: putOf(name, "v").Operation})
	}
	r.commit(t, transaction)
	name := rapid.SampledFrom(r.names[:2]).Draw(t, "name")
	r.send(t, []store.Write{{WriteToken: r.next(name), Operation: r.operation(t, name)}})
	r.commit(t, transaction)
}

// next is the token of a holder that does everything right.
func (r *randomRun) next(name store.Name) store.WriteToken {
	resource := r.model.Resource(name)
	granted, leaseID := r.model.Granted(name)
	token := store.WriteToken{Resource: name, Token: granted, Sequence: new(int64(1)), LeaseID: &leaseID}
	if resource.LastToken == granted {
		*token.Sequence = resource.LastSequence + 1
	}
	return token
}

func (r *randomRun) commit(t *rapid.T, transaction store.Transaction) {
	r.do(t, historyCall{resources: []store.Name{transaction.Tokens[0].Resource}, transaction: &transaction})
}

func (r *randomRun) readLock(t *rapid.T) {
	r.do(t, historyCall{resources: []store.Name{r.name(t)}, lock: true})
}

func (r *randomRun) readFence(t *rapid.T) { r.sameFence(t, r.name(t)) }

func (r *randomRun) sameFence(t *rapid.T, name store.Name) {
	fence, err := r.gateway.Fence(t.Context(), name)
	r.same(t, fmt.Sprintf("fence %s", name), storetest.FenceAnswer(fence, err), r.model.Fence(name))
	if want := r.model.Policy(name); err == nil && fence.Policy != want {
		t.Fatalf("the policy of %s is %+v, want %+v", name, fence.Policy, want)
	}
}

// readAll compares everything that is stored.
func (r *randomRun) readAll(t *rapid.T) {
	for _, id := range r.sessions {
		r.sameSession(t, id)
	}
	for _, name := range r.names {
		r.do(t, historyCall{resources: []store.Name{name}, lock: true})
		r.sameFence(t, name)
		want := r.model.Resource(name).Keys()
		records, err := r.gateway.Records(t.Context(), store.RecordQuery{Resource: name, Limit: store.PageMax})
		if err != nil {
			t.Fatal(err)
		}
		var got []store.Name
		for _, record := range records {
			got = append(got, record.Key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the records of %s are %q, want %q", name, got, want)
		}
		for _, key := range want {
			r.do(t, historyCall{resources: []store.Name{name}, record: key})
		}
	}
}
