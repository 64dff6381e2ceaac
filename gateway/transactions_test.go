package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func claim(lease api.Lease, sequence int64) api.WriteToken {
	return api.WriteToken{Resource: lease.Lock, FencingToken: &lease.FencingToken, Sequence: &sequence, LeaseID: &lease.LeaseID}
}

func putOp(lease api.Lease, key, value string) api.Op {
	return api.Op{Op: "put", Resource: lease.Lock, Key: key, Value: json.RawMessage(value)}
}

func deleteOp(lease api.Lease, key string) api.Op {
	return api.Op{Op: "delete", Resource: lease.Lock, Key: key}
}

// ifVersion adds a condition to an operation.
func ifVersion(op api.Op, version int64) api.Op {
	op.IfVersion = &version
	return op
}

func (c client) transact(t testing.TB, request api.TransactionRequest) answer {
	t.Helper()
	return c.post(t, "/v1/transactions", encode(request))
}

func TestTransaction(t *testing.T) {
	h := newHarness(t, Config{})
	from, to := h.acquire(t, "accounts/1", "clerk"), h.acquire(t, "accounts/2", "clerk")
	as[api.WriteResult](t, h.put(t, from, 1, "old"), http.StatusCreated)

	bytes := base64.StdEncoding.EncodeToString([]byte("\x00\xff"))
	request := api.TransactionRequest{
		Fences: []api.WriteToken{claim(from, 2), claim(to, 1)},
		Ops: []api.Op{
			putOp(to, "balance", ` {"b": 1.0, "a":null} `),
			ifVersion(deleteOp(from, "k"), 1),
			ifVersion(putOp(from, "balance", "-10"), 0),
			{Op: "put", Resource: to.Lock, Key: "photo", ValueBase64: &bytes, ContentType: "image/png"},
		},
	}
	result := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK)
	want := []api.OpResult{
		{Op: "put", Resource: "accounts/2", Key: "balance", Version: 1}, {Op: "delete", Resource: "accounts/1", Key: "k", Version: 2},
		{Op: "put", Resource: "accounts/1", Key: "balance", Version: 2}, {Op: "put", Resource: "accounts/2", Key: "photo", Version: 1},
	}
	if !slices.Equal(result.Results, want) || result.Replayed {
		t.Errorf("the results are %+v, want %+v", result, want)
	}
	refused(t, h.get(t, recordPath("accounts/1", "k")), api.CodeNotFound)
	if got := h.get(t, recordPath("accounts/2", "photo")); string(got.body) != "\x00\xff" || got.header.Get("Content-Type") != "image/png" {
		t.Errorf("the photo is %q of type %s", got.body, got.header.Get("Content-Type"))
	}
	if got := h.get(t, recordPath("accounts/2", "balance")); string(got.body) != `{"b":1.0,"a":null}` || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the balance is %q of type %s", got.body, got.header.Get("Content-Type"))
	}

	h.unchanged(t, func() {
		again := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK)
		if !again.Replayed || !slices.Equal(again.Results, want) {
			t.Errorf("sent again: %+v", again)
		}
		request.Ops[0].Value = json.RawMessage("2")
		refused(t, h.transact(t, request), api.CodeTokenStale)
	})
}

// A transaction that is refused for one of its claims or operations changes nothing, and says which it was.
func TestRefusedTransaction(t *testing.T) {
	h := newHarness(t, Config{})
	mine, late := h.acquire(t, "mine", "worker"), h.acquire(t, "late", "worker")
	as[api.WriteResult](t, h.put(t, mine, 5, "mine"), http.StatusCreated)
	h.release(t, late)
	current := h.acquire(t, "late", "other")
	unnamed := claim(mine, 6)
	wrong := uuid.NewString()
	unnamed.LeaseID = &wrong
	tokenless := claim(mine, 6)
	tokenless.FencingToken = nil
	forged := claim(mine, 6)
	greatest := int64(1<<53 - 1)
	forged.FencingToken = &greatest
	fine := putOp(mine, "fine", "1")

	place := func(i int) *int { return &i }
	for _, group := range []struct {
		name     string
		fences   []api.WriteToken
		ops      []api.Op
		code     api.Code
		op       *int
		resource string
	}{
		{"stale", []api.WriteToken{claim(mine, 6), claim(late, 1)}, []api.Op{fine, putOp(late, "k", "1")}, api.CodeTokenStale, nil, "late"},
		{"stale, first", []api.WriteToken{claim(late, 1), claim(mine, 6)}, []api.Op{fine, putOp(late, "k", "1")}, api.CodeTokenStale, nil, "late"},
		{"stale, and unused", []api.WriteToken{claim(mine, 6), claim(late, 1)}, []api.Op{fine}, api.CodeTokenStale, nil, "late"},
		{"reused", []api.WriteToken{claim(mine, 5)}, []api.Op{fine}, api.CodeTokenStale, nil, "mine"},
		{"replay on one fence only", []api.WriteToken{claim(mine, 5), claim(current, 1)}, []api.Op{fine}, api.CodeTokenStale, nil, "mine"},
		{"forged", []api.WriteToken{forged}, []api.Op{fine}, api.CodeTokenUnknown, nil, "mine"},
		{"without a token", []api.WriteToken{tokenless}, []api.Op{fine}, api.CodeTokenRequired, nil, "mine"},
		{"other lease_id", []api.WriteToken{unnamed}, []api.Op{fine}, api.CodeLeaseMismatch, nil, "mine"},
		{"not claimed", []api.WriteToken{claim(mine, 6)}, []api.Op{fine, putOp(current, "k", "1")}, api.CodeTokenRequired, place(1), "late"},
		{"version", []api.WriteToken{claim(mine, 6)}, []api.Op{fine, fineAt(fine, "2"), ifVersion(putOp(mine, "k", "1"), 7)}, api.CodeVersionMismatch, place(2), "mine"},
		{"there already", []api.WriteToken{claim(mine, 6)}, []api.Op{ifVersion(putOp(mine, "k", "1"), 0), fine}, api.CodeVersionMismatch, place(0), "mine"},
		{"nothing to delete", []api.WriteToken{claim(mine, 6)}, []api.Op{fine, deleteOp(mine, "nothing")}, api.CodeNotFound, nil, ""},
	} {
		t.Run(group.name, func(t *testing.T) {
			h.unchanged(t, func() {
				got := h.transact(t, api.TransactionRequest{Fences: group.fences, Ops: group.ops})
				problem := refused(t, got, group.code)
				if fmt.Sprint(value(problem.Op)) != fmt.Sprint(value(group.op)) || problem.Resource != group.resource {
					t.Errorf("op %v, resource %q, want %v, %q: %s", value(problem.Op), problem.Resource, value(group.op), group.resource, got.body)
				}
				t.Log(problem.Detail)
			})
		})
	}
	as[api.TransactionResult](t, h.transact(t, api.TransactionRequest{Fences: []api.WriteToken{claim(mine, 6), claim(current, 1)}, Ops: []api.Op{fine}}), http.StatusOK)
	refused(t, h.put(t, current, 1, "x"), api.CodeTokenStale) // a fence that was claimed is raised, written to or not
}

// fineAt is an operation on another key.
func fineAt(op api.Op, key string) api.Op {
	op.Key = key
	return op
}

func value[T any](pointer *T) any {
	if pointer == nil {
		return nil
	}
	return *pointer
}

func TestTransactionLimits(t *testing.T) {
	h := newHarness(t, Config{})
	var request api.TransactionRequest
	for i := range store.WriteTokensMax {
		request.Fences = append(request.Fences, claim(h.acquire(t, "locks/"+strconv.Itoa(i), "worker"), 1))
	}
	for i := range store.OperationsMax {
		request.Ops = append(request.Ops, putOp(api.Lease{Lock: "locks/" + strconv.Itoa(i%store.WriteTokensMax)}, strconv.Itoa(i), "1"))
	}
	over := request
	over.Ops = append(slices.Clone(request.Ops), putOp(api.Lease{Lock: "locks/0"}, "more", "1"))
	h.unchanged(t, func() { refused(t, h.transact(t, over), api.CodeInvalidRequest) })
	over = request
	over.Fences = append(slices.Clone(request.Fences), claim(h.acquire(t, "one more", "worker"), 1))
	h.unchanged(t, func() { refused(t, h.transact(t, over), api.CodeInvalidRequest) })

	if result := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK); len(result.Results) != store.OperationsMax {
		t.Errorf("there are %d results", len(result.Results))
	}
	if stored := h.count(t, "select count(*) from fence.records"); stored != store.OperationsMax {
		t.Errorf("%d records were stored", stored)
	}
}

// The names of a transaction are held to the same limits as those of paths.
func TestNamesInTransactions(t *testing.T) {
	h := newHarness(t, Config{})
	for _, name := range goodNames {
		lease := as[api.Lease](t, h.post(t, lockPath(name, "/acquire"), `{"owner_id":"w","request_id":"r"}`), http.StatusOK)
		result := as[api.TransactionResult](t, h.transact(t, api.TransactionRequest{Fences: []api.WriteToken{claim(lease, 1)}, Ops: []api.Op{putOp(lease, name, "1")}}), http.StatusOK)
		if result.Results[0].Resource != name || result.Results[0].Key != name {
			t.Errorf("%q was taken for %+v", name, result.Results[0])
		}
	}
}
