package postgres_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyStep is one operation of a history that is made by hand. Operations come one after the other.
type historyStep func() (historyCall, historyResult)

const (
	historyTree store.Name = "jobs"
	historyLock store.Name = "jobs/1"
)

// historyGrant is a grant to the owner from one second of a clock to another.
func historyGrant(owner string, token, from, until int64) historyStep {
	request := store.AcquireRequest{Lock: historyLock, OwnerID: owner, TTL: time.Duration(until-from) * time.Second,
		RequestID: owner}
	made := storetest.Grant{Token: token, ID: historyID(token), OwnerID: owner, GrantedAt: from * 1e6,
		ExpiresAt: until * 1e6}
	answer := storetest.Answer{Code: storetest.CodeGranted, Token: token, ID: made.ID, Owner: owner,
		ExpiresAt: made.ExpiresAt}
	return inHistory(historyCall{acquire: &request}, historyResult{answer, made})
}

// historyGrantOf is a grant of another kind, or of another name.
func historyGrantOf(name store.Name, mode store.Mode, scope store.Scope, grant historyStep) historyStep {
	call, result := grant()
	request := *call.acquire
	request.Lock, request.Mode, request.Scope = name, mode, scope
	call.acquire, call.resources = &request, []store.Name{name}
	result.made.Mode, result.made.Scope = mode, scope
	return func() (historyCall, historyResult) { return call, result }
}

func historyHeld(by string, until int64) historyStep {
	request := store.AcquireRequest{Lock: historyLock, OwnerID: "C", TTL: time.Second, RequestID: "C"}
	return inHistory(historyCall{acquire: &request},
		historyResult{answer: storetest.Answer{Code: storetest.CodeHeld, Owner: by, ExpiresAt: until * 1e6}})
}

func historyRelease(owner string, token int64, answer storetest.Answer) historyStep {
	ref := store.LeaseRef{Lock: historyLock, OwnerID: owner, ID: historyID(token), Token: token}
	return inHistory(historyCall{release: &ref}, historyResult{answer: answer})
}

func historyPut(token int64, sequence *int64, value string, answer storetest.Answer) historyStep {
	write := putOf(historyLock, value)
	write.Token, write.Sequence = token, sequence
	return inHistory(historyCall{write: &write}, historyResult{answer: answer})
}

func historyRead(answer storetest.Answer) historyStep {
	return inHistory(historyCall{record: "k"}, historyResult{answer: answer})
}

func inHistory(call historyCall, result historyResult) historyStep {
	call.resources = []store.Name{historyLock}
	return func() (historyCall, historyResult) { return call, result }
}

func historyID(token int64) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte{byte(token)}) }

var (
	answerNew      = storetest.Answer{Code: storetest.CodeAdmitted, Version: 1, Created: true}
	answerSecond   = storetest.Answer{Code: storetest.CodeAdmitted, Version: 2}
	answerReleased = storetest.Answer{Code: storetest.CodeReleased}
	answerUnknown  = storetest.Answer{Code: storetest.CodeUnknown}
	answerNotFound = storetest.Answer{Code: storetest.CodeNotFound}
)

func byHand(steps ...historyStep) *history {
	h := &history{model: historyModel(storetest.Model{}, false)}
	for i, step := range steps {
		call, result := step()
		operation := porcupine.Operation{Input: call, Output: result, Call: int64(2 * i), Return: int64(2*i + 1)}
		h.operations = append(h.operations, operation)
		if call.acquire != nil && result.answer.Code == storetest.CodeGranted {
			h.leases = append(h.leases, historyLease{
				Lock: call.acquire.Lock, Mode: result.made.Mode, Scope: result.made.Scope, Token: result.made.Token,
				ID:        result.made.ID,
				GrantedAt: time.UnixMicro(result.made.GrantedAt),
			})
		}
	}
	return h
}

func recordByOne() storetest.Answer {
	return storetest.Answer{Code: storetest.CodeRecord, Version: 1, Record: storetest.Record{
		Version: 1, Token: 1, Sequence: 1, Numbered: true, ContentType: "text/plain", Value: "v",
	}}
}

// TestHistoryCheckerCatches checks that the checker rejects histories that break the contract.
func TestHistoryCheckerCatches(t *testing.T) {
	const order, lost = "no order", "P9"
	one := new(int64(1))
	for _, c := range []struct {
		name, notices string
		history       *history
	}{
		{"a zombie's write", order, byHand(historyGrant("A", 1, 0, 10), historyGrant("B", 2, 10, 20),
			historyPut(1, one, "late", answerNew))},
		{"a zombie's write that waited for the grant", order, overlapping(
			byHand(historyGrant("A", 1, 0, 10), historyPut(1, one, "late", answerNew), historyGrant("B", 2, 10, 20),
				historyRead(answerNotFound)))},
		{"a zombie's write below a subtree", order, byHand(
			historyGrant("A", 1, 0, 10), historyGrantOf(historyTree, store.Exclusive, store.Subtree,
				historyGrant("B", 2, 10, 20)), historyPut(1, one, "late", answerNew))},
		{"a zombie's write beside a reader", order, byHand(
			historyGrant("A", 1, 0, 10), historyGrantOf(historyLock, store.Shared, store.Node, historyGrant("B", 2, 10, 20)),
			historyPut(1, one, "late", answerNew))},
		{"a reader's write", order, byHand(
			historyGrantOf(historyLock, store.Shared, store.Node, historyGrant("A", 1, 0, 10)),
			historyPut(1, one, "v", answerNew))},
		{"a reader beside a writer", order, byHand(
			historyGrant("A", 1, 0, 10), historyGrantOf(historyLock, store.Shared, store.Node, historyGrant("B", 2, 9, 20)))},
		{"a subtree above a lease", order, byHand(
			historyGrant("A", 1, 0, 10), historyGrantOf(historyTree, store.Exclusive, store.Subtree,
				historyGrant("B", 2, 9, 20)))},
		{"a lease below a subtree", order, byHand(
			historyGrantOf(historyTree, store.Exclusive, store.Subtree, historyGrant("A", 1, 0, 10)),
			historyGrant("B", 2, 9, 20))},
		{"tokens that go back below", order, byHand(
			historyGrantOf(historyTree, store.Exclusive, store.Subtree, historyGrant("A", 2, 0, 10)),
			historyGrant("B", 1, 10, 20))},
		{"two leases at once", order, byHand(historyGrant("A", 1, 0, 10), historyGrant("B", 2, 9, 20))},
		{"tokens that go back", order, byHand(historyGrant("A", 2, 0, 10), historyGrant("B", 1, 10, 20))},
		{"a grant that was lost", lost, withoutLeases(byHand(historyGrant("A", 1, 0, 10)))},
		{"a grant without which nothing else can be", order,
			withUnknownAnswer(0, byHand(historyGrant("A", 1, 0, 10), historyHeld("B", 20)))},
		{"held by the owner that released it", order, byHand(historyGrant("A", 1, 0, 10),
			historyRelease("A", 1, answerReleased), historyHeld("A", 10))},
		{"held by somebody else", order, byHand(historyGrant("A", 1, 0, 10), historyHeld("B", 10))},
		{"held until another time", order, byHand(historyGrant("A", 1, 0, 10), historyHeld("A", 11))},
		{"a token that was never granted", order, byHand(historyGrant("A", 1, 0, 10), historyPut(2, one, "v", answerNew))},
		{"a write after the release", order, byHand(historyGrant("A", 1, 0, 10), historyRelease("A", 1, answerReleased),
			historyPut(1, one, "v", answerNew))},
		{"a numbered write applied twice", order, byHand(
			historyGrant("A", 1, 0, 10), historyPut(1, one, "v", answerNew), historyPut(1, one, "v", answerSecond))},
		{"a number used twice", order, byHand(
			historyGrant("A", 1, 0, 10), historyPut(1, one, "v", answerNew), historyPut(1, one, "w", answerSecond))},
		{"two writes of one version", order, byHand(
			historyGrant("A", 1, 0, 10), historyPut(1, one, "v", answerNew), historyPut(1, new(int64(2)), "w", answerNew))},
		{"an acknowledged write that is lost", order, byHand(
			historyGrant("A", 1, 0, 10), historyPut(1, one, "v", answerNew), historyRead(answerNotFound))},
		{"a rejected write that left a trace", order, byHand(
			historyGrant("A", 1, 0, 10), historyPut(2, one, "v", storetest.Answer{Code: "token_unknown", GrantedToken: 1}),
			historyRead(recordByOne()))},
	} {
		if err := c.history.check(); err == nil || !strings.Contains(err.Error(), c.notices) {
			t.Errorf("%s: the checker returned %v, want %q", c.name, err, c.notices)
		}
	}
}

// overlapping makes all operations but the last run at the same time.
func overlapping(h *history) *history {
	last := len(h.operations) - 1
	for i := range h.operations[:last] {
		h.operations[i].Call, h.operations[i].Return = 0, h.operations[last].Call-1
	}
	return h
}

// withUnknownAnswer loses the answer to an operation.
func withUnknownAnswer(index int, h *history) *history {
	operation := &h.operations[index]
	operation.Output = historyResult{answer: answerUnknown, made: operation.Output.(historyResult).made}
	operation.Return = math.MaxInt64
	return h
}

// withoutLeases removes the leases that the database has.
func withoutLeases(h *history) *history {
	h.leases = nil
	return h
}

// TestHistoryCatchesBrokenRule breaks the rule in a database and runs histories until the checker rejects one.
func TestHistoryCatchesBrokenRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		plan                    historyPlan
		function, text, instead string
	}{
		{"the rule without step 3", historyOfWrites, "rule", "when not external and (token < granted_token or not open)",
			"when false"},
		{"fences that are not locked", historyOfWrites, "lock_write_tokens", "order by f.resource for update);",
			"order by f.resource); perform pg_sleep(0.02);"}, // so that calls overlap on a busy machine, too
		{"grants that do not raise the fence", historyOfWrites, "grant",
			"set granted_token = l.fencing_token, open =", "set open ="},
		{"a release that leaves the fence open", historyOfWrites, "close_fence", "fences f set open = false",
			"fences f set open = true"},
		{"writes that do not raise the fence", historyOfWrites, "raised_sequence",
			"else coalesce(p_sequence, 0) end", "else 0 end"},
		{"writes that look at their name alone", historyOfTrees, "admit",
			"s.granted_token > coalesce(stored.granted_token, 0)", "false"},
		{"grants without a tree lock", historyOfTrees, "acquire_lease",
			"perform fence.take_tree_lock(p_request.lock, 'node');", ""},
		{"shared leases that may write", historyOfTrees, "grant", "open = l.mode = 'exclusive',", "open = true,"},
		{"sessions that leave fences open", historyOfTrees, "settle_leases",
			"perform fence.close_fence(v_lease.lock, v_lease.fencing_token);", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newHistoryField(t, c.plan)
			f.breakRule(t, c.function, c.text, c.instead)
			for seed := uint64(1); seed <= 200; seed++ {
				if err := f.run(t, seed).check(); err != nil && !errors.Is(err, errNoVerdict) {
					t.Logf("rejected in round %d: %v", seed, err)
					return
				}
			}
			t.Error("the checker accepted 200 histories")
		})
	}
}

// breakRule replaces a function by one with another text.
func (f *historyFixture) breakRule(t *testing.T, function, text, instead string) {
	t.Helper()
	source, ok := migrations.GuardSource(function)
	if !ok || strings.Count(source, text) != 1 {
		t.Fatalf("%s.SQL must have %q once", function, text)
	}
	if _, err := f.sql.Exec(t.Context(), strings.Replace(source, text, instead, 1)); err != nil {
		t.Fatal(err)
	}
}
