package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// parseLine reads exactly one line that is exactly one document, of known fields.
func parseLine(t *testing.T, out string, document any) {
	t.Helper()
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "\n") {
		t.Fatalf("%q is not one line", out)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(out)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(document); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
}

func TestJSONIsTheAnswerOfTheAPI(t *testing.T) {
	s := newShell(t)
	t.Setenv("FENCEGATE_OUTPUT", "json")
	t.Setenv("FENCEGATE_OWNER_ID", "w<1>")

	var lease, renewed api.Lease
	parseLine(t, s.must("lock", "acquire", "a/b", "--ttl", "1h", "--metadata", `{"m": [1]}`), &lease)
	if lease.Lock != "a/b" || lease.OwnerID != "w<1>" || lease.FencingToken < 1 || lease.TTLMS != 3_600_000 ||
		lease.ExpiresAt.IsZero() {
		t.Errorf("acquire: %+v", lease)
	}
	token := fmt.Sprint(lease.FencingToken)
	parseLine(t, s.must("lock", "renew", "a/b", "--lease-id", lease.LeaseID, "--token", token), &renewed)
	if renewed.LeaseID != lease.LeaseID || renewed.ExpiresAt.Before(lease.ExpiresAt.Time) {
		t.Errorf("renew: %+v", renewed)
	}
	var lock api.Lock
	parseLine(t, s.must("lock", "get", "a/b"), &lock)
	if lock.State != "held" || len(lock.Holders) != 1 || string(lock.Holders[0].Metadata) != `{"m":[1]}` {
		t.Errorf("get: %+v", lock)
	}
	var written api.WriteResult
	parseLine(t, s.must("put", "a/b", "k", `[1, 2]`, "--token", token+".1"), &written)
	if written.Version < 1 || written.FencingToken != lease.FencingToken || *written.Sequence != 1 {
		t.Errorf("put: %+v", written)
	}
	var record recordDocument
	parseLine(t, s.must("get", "a/b", "k"), &record)
	if string(record.Value) != `[1,2]` || record.ValueBase64 != nil || record.FencingToken != lease.FencingToken ||
		*record.Sequence != 1 {
		t.Errorf("get: %+v", record)
	}
	s.must("put", "a/b", "k", "häh", "--token", token+".2")
	record = recordDocument{}
	parseLine(t, s.must("get", "a/b", "k"), &record)
	if record.Value != nil || *record.ValueBase64 != "aMOkaA==" {
		t.Errorf("get: %+v", record)
	}
	var deleted api.WriteResult
	parseLine(t, s.must("delete", "a/b", "k", "--token", token+".3"), &deleted)
	if deleted.Version <= written.Version {
		t.Errorf("delete: %+v", deleted)
	}
	var released api.Released
	parseLine(t, s.must("lock", "release", "a/b", "--lease-id", lease.LeaseID, "--token", token), &released)
	if !released.Released {
		t.Errorf("release: %+v", released)
	}
	s.must("lock", "acquire", "a/b")
	var broken api.Broken
	parseLine(t, s.must("lock", "break", "a/b", "--reason", "test"), &broken)
	if !broken.Broken || broken.OwnerID != "w<1>" || broken.FencingToken <= lease.FencingToken {
		t.Errorf("break: %+v", broken)
	}
}

func TestJSONErrorsAreProblems(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("lock", "acquire", "a", "--owner-id", "w1", "--ttl", "1h")
	for want, args := range map[api.Code][]string{
		api.CodeLockHeld:     {"lock", "acquire", "a"},
		api.CodeTokenUnknown: {"put", "a", "k", "v", "--token", "999"},
		api.CodeNotFound:     {"get", "a", "k"},
		api.CodeInvalidName:  {"get", "a", "../k"},
	} {
		got := s.do(append(args, "--output", "json")...)
		var problem api.Problem
		parseLine(t, got.errOut, &problem)
		if problem.Code != want || problem.Detail == "" || got.out != "" || got.code == exitOK {
			t.Errorf("%q exited with %d, %q, %+v, want %s", args, got.code, got.out, problem, want)
		}
		if want == api.CodeLockHeld && (problem.Holder == nil || problem.Holder.OwnerID != "w1" ||
			problem.RecommendedRetryMS == nil) {
			t.Errorf("%+v does not name the holder of the lock", problem)
		}
	}
}
