package callfile_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/callfile"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// TestLinesAreCalls checks that each line is read as the call that it is, with its answer, and has neither a value nor
// a lease_id.
func TestLinesAreCalls(t *testing.T) {
	t.Parallel()
	recorder, err := callfile.New(callfile.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	id, session := uuid.New(), uuid.New()
	now := time.Now().Truncate(time.Microsecond)
	lease := store.Lease{Lock: "a b", OwnerID: "o;1", ID: id, Token: 7, Mode: store.Exclusive, Scope: store.Subtree,
		GrantedAt: now, ExpiresAt: now.Add(time.Second)}
	write := store.Write{
		WriteToken: store.WriteToken{Resource: "a b", Token: 7, Sequence: new(int64(0)), LeaseID: &id},
		Operation:  store.Operation{Kind: store.Put, Key: "k", ContentType: "text/plain", Value: []byte("private"), Expect: new(int64(2))},
	}
	begin := func() callfile.Call { return recorder.Begin("a b") }
	request := &store.AcquireRequest{Lock: "a b", OwnerID: "o;1", RequestID: "r", Scope: store.Subtree, TTL: time.Second,
		Wait: time.Minute, SessionID: session, NewestToken: 6}
	begin().Acquired(request, lease, nil)
	begin().Acquired(request, store.Lease{}, &store.HeldError{Lock: "a b", OwnerID: "other"})
	begin().Renewed(lease.Ref(), 2*time.Second, lease, nil)
	begin().Released(lease.Ref(), &store.LostError{Lock: "a b", Reason: "expired"})
	begin().Broken("a b", lease, nil)
	begin().SessionEnded(session, nil)
	begin().Wrote(write, store.Result{Version: 3, Created: true}, nil)
	begin().Wrote(write, store.Result{Err: &store.RejectedError{Verdict: store.VerdictTokenStale, Reason: "reused", GrantedToken: 7}}, nil)
	begin().Wrote(write, store.Result{}, &store.UnavailableError{Outcome: store.OutcomeUnknown, Err: errors.New("cut")})
	begin().Transacted(store.Transaction{Tokens: []store.WriteToken{write.WriteToken},
		Operations: []store.ResourceOperation{{Resource: "a b", Operation: write.Operation}}},
		store.TransactionResult{Versions: []int64{4}}, nil)
	recorder.Close()
	text, err := os.ReadFile(recorder.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"private", id.String(), session.String()} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the file has %q", secret)
		}
	}
	stand, ofSession := callfile.StandIn(id).String(), callfile.StandIn(session).String()
	times := " expires=" + micros(lease.ExpiresAt) + " ! token=7 id=" + stand + " granted_at=" + micros(now) + " until=" + micros(lease.ExpiresAt)
	granted := `token=7 id=` + stand + ` owner="o;1" lease=exclusive,subtree` + times
	presented := `token=7 sequence=0 lease_id=` + stand
	put := `key=k type=text/plain value=c5a11c2dd9ab8cec expect=2`
	wants := []string{
		`acquire "a b" owner="o;1" request=r scope=subtree ttl=1s wait=1m0s session=` + ofSession + ` newest_token=6 -> granted ` + granted,
		`acquire "a b" owner="o;1" request=r scope=subtree ttl=1s wait=1m0s session=` + ofSession + ` newest_token=6 -> held_by_another owner=other`,
		`renew "a b" owner="o;1" ttl=2s token=7 lease_id=` + stand + ` -> renewed ` + granted,
		`release "a b" owner="o;1" token=7 lease_id=` + stand + ` -> lost reason=expired`,
		`break "a b" -> broken ` + granted,
		`end-session session=` + ofSession + ` -> released`,
		`put "a b" ` + presented + ` ` + put + ` -> admitted version=3 created=true`,
		`put "a b" ` + presented + ` ` + put + ` -> token_stale reason=reused granted_token=7`,
		`put "a b" ` + presented + ` ` + put + ` -> unknown`,
		`transact ; token "a b" ` + presented + ` ; put "a b" ` + put + ` -> admitted versions=4`,
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != len(wants) {
		t.Fatalf("there are %d lines, want %d:\n%s", len(lines), len(wants), text)
	}
	for i, want := range wants {
		expectCall(t, lines[i], want)
	}
}

// expectCall compares a line, without its times, with a text.
func expectCall(t *testing.T, line, want string) {
	t.Helper()
	call, err := spec.ParseCall(line)
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	if (call.Answered == spec.Never) != (call.Answer.Code == spec.CodeUnknown) || call.Answered < call.Sent {
		t.Errorf("%s: the times are wrong", line)
	}
	if got := strings.SplitN(call.String(), " ", 3)[2]; got != want {
		t.Errorf("read is\n%s\nwant\n%s", got, want)
	}
}

// TestMissingCallsAreCounted checks that the file says how many calls the disk was too slow for.
func TestMissingCallsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, err := callfile.New(callfile.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		recorder.LeaveOut(3)
		time.Sleep(3 * time.Second)
		recorder.Close()
		text, err := os.ReadFile(recorder.Path())
		if want := "# 3 calls are not here: the disk was too slow\n"; err != nil || string(text) != want {
			t.Errorf("%v, %q, want %q", err, text, want)
		}
	})
}

// TestDiskFails checks that a recording that the disk ends is logged, and that calls go on.
func TestDiskFails(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "history"), &bytes.Buffer{}
	recorder, err := callfile.New(callfile.Config{Dir: dir, BytesMax: 1 << 20, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil { // the next file can't be made there
		t.Fatal(err)
	}
	lock := store.Name(strings.Repeat("n", 400))
	for range 6 * (1 << 20) / len(lock) {
		recorder.Begin(lock).Broken(lock, store.Lease{}, nil)
	}
	recorder.Close()
	if !strings.Contains(log.String(), "calls are not recorded any more") {
		t.Errorf("logged is %q", log)
	}
}

// BenchmarkWrote is what a write costs that is recorded.
func BenchmarkWrote(b *testing.B) {
	recorder, err := callfile.New(callfile.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer recorder.Close()
	id := uuid.New()
	write := store.Write{
		WriteToken: store.WriteToken{Resource: "accounts/1", Token: 7, Sequence: new(int64(1)), LeaseID: &id},
		Operation:  store.Operation{Kind: store.Put, Key: "k", ContentType: "text/plain", Value: make([]byte, 100)},
	}
	for b.Loop() {
		recorder.Begin("accounts/1").Wrote(write, store.Result{Version: 3}, nil)
	}
}

func micros(at time.Time) string { return strconv.FormatInt(at.UnixMicro(), 10) }
