package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func TestBadQueries(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	lists := []string{"/v1/locks", "/v1/resources/job/records", "/v1/rejections"}
	var inputs []badInput
	for _, list := range lists {
		for query, detail := range map[string]string{
			"x=1": `no parameter "x"`, "Limit=1": `no parameter "Limit"`, "limit=1&limit=1": "limit is there 2 times", "limit=0": "1 to 1000",
			"limit=-1": "1 to 1000", "limit=1001": "1 to 1000", "limit=ten": "1 to 1000", "limit=1.5": "1 to 1000", "limit=99999999999999999999": "1 to 1000",
			"cursor=*": "cursor must be", "cursor=AA": "cursor must be", "cursor=_w": "cursor must be", "a;b": "malformed", "limit=%zz": "malformed",
		} {
			inputs = append(inputs, badInput{name: list + "?" + query, method: http.MethodGet, path: list + "?" + query, detail: detail})
		}
	}
	for path, detail := range map[string]string{
		"/v1/locks?prefix=%FF": "prefix must be", "/v1/locks?prefix=%00": "without NUL", "/v1/locks?" + strings.Repeat("x", 10_000): "…",
		"/v1/locks?prefix=" + strings.Repeat("x", 513): "at most 512 bytes", "/v1/locks?state=open": "free, held or expired", "/v1/locks?state=%00": "free, held or expired",
		"/v1/resources/job/records?prefix=%ff": "prefix must be", "/v1/resources/job/records?state=held": `no parameter "state"`,
		"/v1/rejections?code=%00": "code must be", "/v1/rejections?code=stale": "code must be", "/v1/rejections?since=yesterday": "since must be",
		"/v1/rejections?since=2026-01-02": "since must be", "/v1/rejections?cursor=eA": "cursor must be", "/v1/rejections?prefix=%FF": "prefix must be",
		"/v1/rejections?sort=last_seen&cursor=Nw": "cursor must be", "/v1/rejections?cursor=MS43": "cursor must be", "/v1/rejections?sort=last_seen&cursor=LTEuNw": "cursor must be",
		"/v1/rejections?sort=last_seen&cursor=OTIyMzM3MjAzNjg1NDc3NTgwNy43": "cursor must be", "/v1/rejections?sort=count": "sort must be", "/v1/rejections?format=xml": "format must be",
		"/v1/rejections?format=csv&limit=10": "leave out limit", "/v1/rejections?format=csv&cursor=Nw": "leave out limit", "/v1/rejections?format=csv&sort=count": "sort must be",
		"/v1/rejections?until=tomorrow": "until must be", "/v1/rejections?reason=%00": "reason has a control", "/v1/rejections?source=%FF": "source is not valid",
		"/v1/rejections?owner_id=" + strings.Repeat("x", 257): "the limit is 256", "/v1/rejections/summary?limit=1": `no parameter "limit"`,
		"/v1/rejections/summary?code=stale": "code must be", "/v1/rejections/summary?since=now": "since must be", "/v1/rejections/summary?prefix=%00": "prefix has a control",
		"/v1/rejections/stream?limit=1": `no parameter "limit"`, "/v1/rejections/stream?since=2026-01-02T09:00:00Z": `no parameter "since"`,
		"/v1/rejections/stream?code=stale": "code must be", "/v1/rejections/stream?last_event_id=-1": "last_event_id must be", "/v1/rejections/stream?last_event_id=x": "last_event_id must be",
		"/v1/rejections/stream?owner_id=%00": "owner_id has a control", "/v1/rejections/stream?prefix=" + strings.Repeat("x", 513): "the limit is 512",
		"/v1/locks/job?x=1": `no parameter "x"`, "/v1/resources/job/fence?x=1": `no parameter "x"`, "/v1/resources/job/records/k?version=1": `no parameter "version"`,
		"/v1/overview?range_ms=59999": "60000 to 86400000", "/v1/overview?range_ms=86400001": "60000 to 86400000", "/v1/overview?range_ms=5m": "60000 to 86400000",
		"/v1/overview?range_ms=-1": "60000 to 86400000", "/v1/overview?range_ms=99999999999999999999": "60000 to 86400000", "/v1/overview?range_ms=60000.5": "60000 to 86400000",
		"/v1/overview?range=60000": `no parameter "range"`, "/v1/overview?range_ms=60000&range_ms=60000": "there 2 times", "/v1/overview/stream?range_ms=60000": `no parameter "range_ms"`,
		"/v1/policies?x=1": `no parameter "x"`, "/v1/policies/job?x=1": `no parameter "x"`,
	} {
		inputs = append(inputs, badInput{name: path, method: http.MethodGet, path: path, detail: detail})
	}
	inputs = append(inputs,
		badInput{name: "resource", method: http.MethodGet, path: "/v1/rejections?resource=a//b", code: api.CodeInvalidName, detail: "resource"},
		badInput{name: "put", method: http.MethodPut, path: "/v1/resources/job/records/k?if_version=1", header: []string{token(lease, 2)}, detail: `no parameter "if_version"`},
		badInput{name: "delete", method: http.MethodDelete, path: "/v1/resources/job/records/k?token=1", header: []string{token(lease, 2)}, detail: `no parameter "token"`},
		badInput{name: "acquire", path: "/v1/locks/new/acquire?ttl_ms=1000", body: `{"owner_id":"w"}`, header: []string{jsonType}, detail: `no parameter "ttl_ms"`},
		badInput{name: "renew", path: "/v1/locks/job/renew?ttl_ms=1000", body: refOf(lease), header: []string{jsonType}, detail: `no parameter "ttl_ms"`},
		badInput{name: "release", path: "/v1/locks/job/release?force=1", body: refOf(lease), header: []string{jsonType}, detail: `no parameter "force"`},
		badInput{name: "break", path: "/v1/locks/job/break?reason=r", body: `{"reason":"r"}`, header: []string{jsonType}, detail: `no parameter "reason"`},
		badInput{name: "transaction", path: "/v1/transactions?dry_run=1", body: transaction(lease, 2), header: []string{jsonType}, detail: `no parameter "dry_run"`},
		badInput{name: "policy", method: http.MethodPut, path: "/v1/policies/job?rule=strict", body: `{}`, header: []string{jsonType}, detail: `no parameter "rule"`},
		badInput{name: "policy of none", method: http.MethodDelete, path: "/v1/policies/job?x", detail: `no parameter "x"`},
	)
	h.refusedAll(t, inputs)
}

// transaction is one that puts a record under a lease.
func transaction(lease api.Lease, sequence int64) string {
	return encode(api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: lease.Lock, FencingToken: &lease.FencingToken, Sequence: &sequence}},
		Ops:    []api.Op{{Op: string(store.Put), Resource: lease.Lock, Key: "t", Value: []byte("1")}},
	})
}
