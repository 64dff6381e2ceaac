package gateway

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
)

// timeFormat is RFC 3339 in UTC with milliseconds.
var timeFormat = regexp.MustCompile(`"(granted_at|expires_at)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)

func TestLeaseLife(t *testing.T) {
	h := newHarness(t, Config{})
	granted := h.post(t, lockPath("jobs/42", "/acquire"), `{"owner_id":"worker-1","ttl_ms":60000,"metadata":{"pid":7}}`)
	lease := as[api.Lease](t, granted, http.StatusOK)
	if lease.Lock != "jobs/42" || lease.OwnerID != "worker-1" || lease.Mode != "exclusive" || lease.Scope != "node" ||
		lease.TTLMS != 60000 || lease.FencingToken < 1 || lease.WaitedMS != 0 || string(lease.Metadata) != `{"pid":7}` {
		t.Errorf("the lease is %s", granted.body)
	}
	if _, err := uuid.Parse(lease.LeaseID); err != nil {
		t.Errorf("the lease_id is %q", lease.LeaseID)
	}
	if lasts := lease.ExpiresAt.Sub(lease.GrantedAt.Time); lasts != time.Minute {
		t.Errorf("it expires %s after its grant, want a minute", lasts)
	}
	if len(timeFormat.FindAllString(string(granted.body), -1)) != 2 {
		t.Errorf("the times of %s are not RFC 3339 UTC with milliseconds", granted.body)
	}

	renewal := api.RenewRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
	renewed := as[api.Lease](t, h.post(t, lockPath("jobs/42", "/renew"), encode(renewal)), http.StatusOK)
	if renewed.TTLMS != 60000 || renewed.FencingToken != lease.FencingToken || renewed.LeaseID != lease.LeaseID ||
		!renewed.GrantedAt.Equal(lease.GrantedAt.Time) || renewed.ExpiresAt.Before(lease.ExpiresAt.Time) {
		t.Errorf("renewed %+v became %+v", lease, renewed)
	}
	ttl := int64(3_600_000)
	renewal.TTLMS = &ttl
	renewed = as[api.Lease](t, h.post(t, lockPath("jobs/42", "/renew"), encode(renewal)), http.StatusOK)
	if renewed.TTLMS != ttl || renewed.ExpiresAt.Sub(lease.ExpiresAt.Time) < 58*time.Minute {
		t.Errorf("renewed for an hour it is %+v", renewed)
	}

	h.release(t, lease)
	h.release(t, lease) // sent twice, it succeeds twice
	if again := h.acquire(t, "jobs/42", "worker-2"); again.FencingToken <= lease.FencingToken {
		t.Errorf("token %d was granted after %d", again.FencingToken, lease.FencingToken)
	}
}

func TestAcquireDefaults(t *testing.T) {
	h := newHarness(t, Config{})
	for name, body := range map[string]string{
		"absent": `{"owner_id":"w"}`,
		"null":   `{"owner_id":"w","ttl_ms":null,"mode":null,"scope":null,"wait_ms":null,"session_id":null,"request_id":null,"metadata":null}`,
		"given":  `{"owner_id":"w","ttl_ms":30000,"mode":"exclusive","scope":"node","wait_ms":0,"metadata":{}}`,
		"typed":  "\n\t{ \"owner_id\" : \"w\" }\n",
	} {
		got := as[api.Lease](t, h.post(t, lockPath(name, "/acquire"), body), http.StatusOK)
		if got.TTLMS != 30000 || got.Mode != "exclusive" || got.Scope != "node" || got.OwnerID != "w" {
			t.Errorf("%s: the lease is %+v", name, got)
		}
	}
}

func TestAcquireLimits(t *testing.T) {
	h := newHarness(t, Config{})
	longest := strings.Repeat("é", 128)
	metadata := `{"a":"` + strings.Repeat("x", 4096-8) + `"}`
	for name, body := range map[string]string{
		"ttl least":    `{"owner_id":"w","ttl_ms":100}`,
		"ttl most":     `{"owner_id":"w","ttl_ms":86400000}`,
		"owner":        `{"owner_id":"` + longest + `"}`,
		"request":      `{"owner_id":"w","request_id":"` + longest + `"}`,
		"metadata":     `{"owner_id":"w","metadata":` + metadata + `}`,
		"content type": `{"owner_id":"w"}`,
	} {
		as[api.Lease](t, h.send(t, http.MethodPost, lockPath(name, "/acquire"), body, `Content-Type: Application/JSON; charset="utf-8"`), http.StatusOK)
	}
	// Its metadata is shown to all, the lease_id is not.
	shown := h.get(t, lockPath("metadata", ""))
	lock := as[api.Lock](t, shown, http.StatusOK)
	if len(lock.Holders) != 1 || string(lock.Holders[0].Metadata) != metadata || strings.Contains(string(shown.body), `"lease_id"`) {
		t.Errorf("the lock is %s", shown.body)
	}
}

func TestAcquireAgain(t *testing.T) {
	h := newHarness(t, Config{})
	const body = `{"owner_id":"w","request_id":"r-1"}`
	first := as[api.Lease](t, h.post(t, lockPath("job", "/acquire"), body), http.StatusOK)
	if second := as[api.Lease](t, h.post(t, lockPath("job", "/acquire"), body), http.StatusOK); second.LeaseID != first.LeaseID {
		t.Errorf("the same request got %+v and %+v", first, second)
	}
	refused(t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"other","request_id":"r-1"}`), api.CodeInvalidRequest)
	refused(t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"w"}`), api.CodeLockHeld) // it is not re-entrant
	h.release(t, first)
	if lost := refused(t, h.post(t, lockPath("job", "/acquire"), body), api.CodeLeaseLost); lost.Reason != "released" {
		t.Errorf("the reason is %q", lost.Reason)
	}
}

func TestLockHeld(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker-1")
	var got answer
	h.unchanged(t, func() { got = h.post(t, lockPath("job", "/acquire"), `{"owner_id":"worker-2"}`) })
	held := refused(t, got, api.CodeLockHeld)
	if held.Holder == nil || held.Holder.OwnerID != "worker-1" || !held.Holder.ExpiresAt.Equal(lease.ExpiresAt.Time) {
		t.Errorf("the holder is missing or wrong: %s", got.body)
	}
	if held.QueueLength == nil || *held.QueueLength != 0 {
		t.Errorf("queue_length is missing or wrong: %s", got.body)
	}
	if held.RecommendedRetryMS == nil || *held.RecommendedRetryMS < 50 || *held.RecommendedRetryMS > 1250 || !held.Retryable {
		t.Fatalf("recommended_retry_ms or retryable is missing or wrong: %s", got.body)
	}
	seconds, _ := strconv.ParseInt(got.header.Get("Retry-After"), 10, 64)
	if wait := seconds * 1000; wait < *held.RecommendedRetryMS || wait >= *held.RecommendedRetryMS+1000 {
		t.Errorf("Retry-After is %d s where %d ms are recommended", seconds, *held.RecommendedRetryMS)
	}
	if strings.Contains(string(got.body), lease.LeaseID) {
		t.Errorf("the lease_id is told to another: %s", got.body)
	}
}

func TestLockStates(t *testing.T) {
	h := newHarness(t, Config{})
	refused(t, h.get(t, lockPath("job", "")), api.CodeNotFound)
	lease := h.acquire(t, "job", "worker-1")
	state := func() api.Lock { return as[api.Lock](t, h.get(t, lockPath("job", "")), http.StatusOK) }
	held := state()
	if held.State != "held" || held.FencingToken != lease.FencingToken || len(held.Holders) != 1 || held.Queue == nil {
		t.Fatalf("held: %+v", held)
	}
	if holder := held.Holders[0]; holder.OwnerID != "worker-1" || holder.FencingToken != lease.FencingToken || holder.TTLMS != 30000 ||
		!holder.GrantedAt.Equal(lease.GrantedAt.Time) || !holder.ExpiresAt.Equal(lease.ExpiresAt.Time) || holder.Mode != "exclusive" || holder.Scope != "node" {
		t.Errorf("the holder of %+v is %+v", lease, holder)
	}
	h.expire(t, lease)
	if late := state(); late.State != "expired" || len(late.Holders) != 1 {
		t.Errorf("expired: %+v", late)
	}
	h.release(t, lease)
	if free := state(); free.State != "free" || free.Holders == nil || len(free.Holders) != 0 || free.FencingToken != lease.FencingToken {
		t.Errorf("free: %+v", free)
	}
}
