package gateway

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func writeToken(lease api.Lease, sequence int64) api.WriteToken {
	return api.WriteToken{
		Resource: lease.Lock, FencingToken: &lease.FencingToken, Sequence: &sequence, LeaseID: &lease.LeaseID,
	}
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

// A transaction applies its operations together and returns their versions. Sent again, it is a replay.
func TestTransaction(t *testing.T) {
	h := newHarness(t, Config{})
	from, to := h.acquire(t, "accounts/1", "clerk"), h.acquire(t, "accounts/2", "clerk")
	as[api.WriteResult](t, h.put(t, from, 1, "old"), http.StatusCreated)

	bytes := base64.StdEncoding.EncodeToString([]byte("\x00\xff"))
	request := api.TransactionRequest{
		Fences: []api.WriteToken{writeToken(from, 2), writeToken(to, 1)},
		Ops: []api.Op{
			putOp(to, "balance", ` {"b": 1.0, "a":null} `),
			ifVersion(deleteOp(from, "k"), 1),
			ifVersion(putOp(from, "balance", "-10"), 0),
			{Op: "put", Resource: to.Lock, Key: "photo", ValueBase64: &bytes, ContentType: "image/png"},
		},
	}
	result := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK)
	want := []api.OpResult{
		{Op: "put", Resource: "accounts/2", Key: "balance", Version: 1},
		{Op: "delete", Resource: "accounts/1", Key: "k", Version: 2},
		{Op: "put", Resource: "accounts/1", Key: "balance", Version: 2},
		{Op: "put", Resource: "accounts/2", Key: "photo", Version: 1},
	}
	if !reflect.DeepEqual(result.Results, want) || result.Replayed {
		t.Errorf("the transaction returned %+v, want %+v", result, want)
	}
	expectProblem(t, h.get(t, recordPath("accounts/1", "k")), api.CodeNotFound)
	h.expectRecord(t, recordPath("accounts/2", "photo"), "\x00\xff", "image/png")
	h.expectRecord(t, recordPath("accounts/2", "balance"), `{"b":1.0,"a":null}`, "application/json")

	h.unchanged(t, func() {
		again := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK)
		if !again.Replayed || !reflect.DeepEqual(again.Results, want) {
			t.Errorf("the transaction sent again returned %+v, want a replay of %+v", again, want)
		}
		request.Ops[0].Value = json.RawMessage("2")
		expectProblem(t, h.transact(t, request), api.CodeTokenStale)
	})
}

// expectRecord checks the value and the content type of a record.
func (c client) expectRecord(t testing.TB, path, value, contentType string) {
	t.Helper()
	if got := c.get(t, path); string(got.body) != value || got.header.Get("Content-Type") != contentType {
		t.Errorf("%s is %q of type %s, want %q of type %s", path, got.body, got.header.Get("Content-Type"), value,
			contentType)
	}
}

// A transaction with a rejected token or operation changes nothing. The answer says which it was.
func TestRejectedTransaction(t *testing.T) {
	h := newHarness(t, Config{})
	mine, late := h.acquire(t, "mine", "worker"), h.acquire(t, "late", "worker")
	as[api.WriteResult](t, h.put(t, mine, 5, "mine"), http.StatusCreated)
	h.release(t, late)
	current := h.acquire(t, "late", "other")
	good, stale := writeToken(mine, 6), writeToken(late, 1)
	wrongLease, tokenless, forged := good, good, good
	wrongLease.LeaseID, tokenless.FencingToken, forged.FencingToken = new(uuid.NewString()), nil, new(int64(1<<53-1))
	fine, ofLate, more := putOp(mine, "fine", "1"), putOp(late, "k", "1"), putOp(mine, "k", "1")

	type (
		tokens = []api.WriteToken
		ops    = []api.Op
	)
	for name, c := range map[string]struct {
		fences   tokens
		ops      ops
		code     api.Code
		op       *int
		resource string
	}{
		"stale":            {tokens{good, stale}, ops{fine, ofLate}, api.CodeTokenStale, nil, "late"},
		"stale and unused": {tokens{good, stale}, ops{fine}, api.CodeTokenStale, nil, "late"},
		"reused":           {tokens{writeToken(mine, 5)}, ops{fine}, api.CodeTokenStale, nil, "mine"},
		"forged":           {tokens{forged}, ops{fine}, api.CodeTokenUnknown, nil, "mine"},
		"without a token":  {tokens{tokenless}, ops{fine}, api.CodeTokenRequired, nil, "mine"},
		"other lease_id":   {tokens{wrongLease}, ops{fine}, api.CodeLeaseMismatch, nil, "mine"},
		"no write token":   {tokens{good}, ops{fine, putOp(current, "k", "1")}, api.CodeTokenRequired, new(1), "late"},
		"other version": {
			tokens{good}, ops{fine, putOp(mine, "2", "1"), ifVersion(more, 7)}, api.CodeVersionMismatch, new(2), "mine",
		},
		"record exists":     {tokens{good}, ops{ifVersion(more, 0), fine}, api.CodeVersionMismatch, new(0), "mine"},
		"nothing to delete": {tokens{good}, ops{fine, deleteOp(mine, "nothing")}, api.CodeNotFound, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h.unchanged(t, func() {
				got := h.transact(t, api.TransactionRequest{Fences: c.fences, Ops: c.ops})
				problem := expectProblem(t, got, c.code)
				if value(problem.Op) != value(c.op) || problem.Resource != c.resource {
					t.Errorf("want op %v and resource %q, got %s", value(c.op), c.resource, got.body)
				}
			})
		})
	}
	both := api.TransactionRequest{Fences: tokens{good, writeToken(current, 1)}, Ops: ops{fine}}
	as[api.TransactionResult](t, h.transact(t, both), http.StatusOK)
	expectProblem(t, h.put(t, current, 1, "x"), api.CodeTokenStale) // the transaction raised all fences of its tokens
}

// A transaction may have WriteTokensMax tokens and OperationsMax operations, and no more.
func TestTransactionLimits(t *testing.T) {
	h := newHarness(t, Config{})
	var request api.TransactionRequest
	for i := range store.WriteTokensMax {
		request.Fences = append(request.Fences, writeToken(h.acquire(t, "locks/"+strconv.Itoa(i), "worker"), 1))
	}
	for i := range store.OperationsMax {
		lease := api.Lease{Lock: "locks/" + strconv.Itoa(i%store.WriteTokensMax)}
		request.Ops = append(request.Ops, putOp(lease, strconv.Itoa(i), "1"))
	}
	ops, tokens := request, request
	ops.Ops = append(slices.Clone(request.Ops), putOp(api.Lease{Lock: "locks/0"}, "more", "1"))
	tokens.Fences = append(slices.Clone(request.Fences), writeToken(h.acquire(t, "one more", "worker"), 1))
	h.unchanged(t, func() {
		expectProblem(t, h.transact(t, ops), api.CodeInvalidRequest)
		expectProblem(t, h.transact(t, tokens), api.CodeInvalidRequest)
	})
	if result := as[api.TransactionResult](t, h.transact(t, request),
		http.StatusOK); len(result.Results) != store.OperationsMax {
		t.Errorf("the transaction returned %d results, want %d", len(result.Results), store.OperationsMax)
	}
	if stored := h.count(t, "select count(*) from fence.records"); stored != store.OperationsMax {
		t.Errorf("the transaction stored %d records, want %d", stored, store.OperationsMax)
	}
}
