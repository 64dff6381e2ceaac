package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// invalidQueries has queries that one path refuses, and a part of the detail. The paths are prefixed with /v1.
var invalidQueries = map[string][]string{
	"/locks": {
		"prefix=%FF → prefix must be", "prefix=%00 → without NUL", strings.Repeat("x", 10_000) + " → …",
		"prefix=" + strings.Repeat("x", 513) + " → at most 512 bytes", "state=open → free, held or expired",
		"state=%00 → free, held or expired", "sort=owner → sort must be name, expires_at, granted_at, fencing_token or queue",
		"sort=NAME → sort must be", "sort=%00 → sort must be", "order=up → order must be asc or desc",
		"order=DESC → order must be",
		"count=1 → count must be false or true", "queue_max=-1 → queue_max is -1, it must be 0 to 1000",
		"queue_max=1001 → 0 to 1000", "queue_max=all → queue_max must be an integer from 0 to 1000",
		"queue_max=1.5 → 0 to 1000",
		"contains=%00 → contains has a control character", "contains=%FF → contains is not valid UTF-8",
		"contains=" + strings.Repeat("x", store.NameBytesMax+1) + " → contains has 513 bytes, the limit is 512",
		"owner_id=%0a → owner_id has a control character", "owner_id=%FF → owner_id is not valid UTF-8",
		"owner_id=" + strings.Repeat("x", store.OwnerBytesMax+1) + " → owner_id has 257 bytes, the limit is 256",
		"sort=queue&cursor=eA → cursor must be", "sort=queue&cursor=cXVldWUgeCBh → cursor must be",
		"sort=queue&cursor=cXVldWUgMSA → cursor must be", "sort=queue&sort=name → sort is there 2 times",
	},
	"/resources/job/records": {"prefix=%ff → prefix must be", `state=held → no parameter "state"`},
	"/rejections": {
		"code=%00 → code must be", "code=stale → code must be", "since=yesterday → since must be",
		"since=2026-01-02 → since must be", "cursor=eA → cursor must be", "prefix=%FF → prefix must be",
		"sort=last_seen&cursor=Nw → cursor must be", "cursor=MS43 → cursor must be",
		"sort=last_seen&cursor=LTEuNw → cursor must be",
		"sort=last_seen&cursor=OTIyMzM3MjAzNjg1NDc3NTgwNy43 → cursor must be", "sort=count → sort must be",
		`format=csv → no parameter "format"`, "until=tomorrow → until must be", "reason=%00 → reason has a control",
		"source=%FF → source is not valid", "owner_id=" + strings.Repeat("x", 257) + " → the limit is 256",
	},
	"/rejections/summary": {
		`limit=1 → no parameter "limit"`, "code=stale → code must be", "since=now → since must be",
		"prefix=%00 → prefix has a control",
	},
	"/rejections/stream": {
		`limit=1 → no parameter "limit"`, `since=2026-01-02T09:00:00Z → no parameter "since"`, "code=stale → code must be",
		"last_event_id=-1 → last_event_id must be", "last_event_id=x → last_event_id must be",
		"owner_id=%00 → owner_id has a control", "prefix=" + strings.Repeat("x", 513) + " → the limit is 512",
	},
	"/overview": {
		"range_ms=59999 → 60000 to 3600000", "range_ms=3600001 → 60000 to 3600000", "range_ms=5m → 60000 to 3600000",
		"range_ms=-1 → 60000 to 3600000", "range_ms=99999999999999999999 → 60000 to 3600000",
		"range_ms=60000.5 → 60000 to 3600000", `range=60000 → no parameter "range"`,
		"range_ms=60000&range_ms=60000 → there 2 times",
	},
	"/leases": {
		"state=free → state must be running or ended", "owner_id=" + strings.Repeat("x", 257) + " → owner_id has 257 bytes",
		"owner_id=%00 → control character", "cursor=eA → cursor must be", "cursor=LTEgYQ → cursor must be",
		`prefix=a → no parameter "prefix"`,
	},
	"/sessions": {
		"state=held → state must be live, ended or expired", "owner_id=%FF → not valid UTF-8",
		`session_id=x → no parameter "session_id"`, "cursor=MSB4eA → the sort key of a session is hexadecimal",
	},
	"/elections":               {"prefix=%00 → without NUL", `state=held → no parameter "state"`},
	"/tables":                  {"prefix=%00 → without NUL", "cursor=eA → cursor must be"},
	"/overview/stream":         {`range_ms=60000 → no parameter "range_ms"`, "last_event_id=x → last_event_id must be"},
	"/locks/job":               {`x=1 → no parameter "x"`},
	"/elections/job":           {`x=1 → no parameter "x"`},
	"/resources/job/fence":     {`x=1 → no parameter "x"`},
	"/resources/job/records/k": {`version=1 → no parameter "version"`},
	"/policies":                {`x=1 → no parameter "x"`},
	"/policies/job":            {`x=1 → no parameter "x"`},
	"/elections/job/observe":   {`after=1 → no parameter "after"`, "last_event_id=1&last_event_id=1 → is there 2 times"},
	"/locks/job/watch":         {`after=1 → no parameter "after"`, "last_event_id=1&last_event_id=1 → is there 2 times"},
	"/sessions/" + noSession:   {`x=1 → no parameter "x"`},
}

func TestInvalidQueries(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []invalidInput
	add := func(path string, lines ...string) {
		for _, line := range lines {
			query, detail, _ := strings.Cut(line, " → ")
			inputs = append(inputs, invalidInput{method: http.MethodGet, path: path + "?" + query, detail: detail})
		}
	}
	for path, lines := range invalidQueries {
		add("/v1"+path, lines...)
	}
	for _, path := range []string{
		"/v1/locks", "/v1/resources/job/records", "/v1/rejections", "/v1/leases", "/v1/sessions", "/v1/elections",
		"/v1/tables",
	} {
		add(path, `x=1 → no parameter "x"`, `Limit=1 → no parameter "Limit"`, "limit=1&limit=1 → limit is there 2 times",
			"limit=0 → 1 to 1000", "limit=-1 → 1 to 1000", "limit=1001 → 1 to 1000", "limit=ten → 1 to 1000",
			"limit=1.5 → 1 to 1000",
			"limit=99999999999999999999 → 1 to 1000", "cursor=* → cursor must be", "cursor=AA → cursor must be",
			"cursor=_w → cursor must be", "a;b → malformed", "limit=%zz → malformed")
	}
	names := map[string]string{"/v1/rejections?resource=a//b": "resource", "/v1/leases?lock=a//b": "lock",
		"/v1/waits?lock=%2F": "lock"}
	for path, detail := range names {
		inputs = append(inputs, invalidInput{method: http.MethodGet, path: path, code: api.CodeInvalidName, detail: detail})
	}
	h.expectRefusals(t, inputs)
}

// A request that writes refuses every query parameter.
func TestQueriesOfWrites(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	fenced := token(lease, 2)
	h.expectRefusals(t, changeEach([]invalidInput{
		{method: http.MethodPut, path: "/v1/resources/job/records/k?if_version=1", headers: []string{fenced}},
		{method: http.MethodDelete, path: "/v1/resources/job/records/k?token=1", headers: []string{fenced}},
		{path: "/v1/locks/new/acquire?ttl_ms=1000", body: `{"owner_id":"w"}`},
		{path: "/v1/locks/job/renew?ttl_ms=1000", body: refOf(lease)},
		{path: "/v1/locks/job/release?force=1", body: refOf(lease)},
		{path: "/v1/locks/job/break?reason=r", body: `{"reason":"r"}`},
		{path: "/v1/transactions?dry_run=1", body: transaction(lease, 2)},
		{path: "/v1/sessions?ttl_ms=1000", body: `{"owner_id":"w"}`},
		{path: "/v1/sessions/" + noSession + "/keepalive?ttl_ms=1000", body: "{}"},
		{method: http.MethodDelete, path: "/v1/sessions/" + noSession + "?force=1"},
		{path: "/v1/elections/new/campaign?wait_ms=1", body: `{"candidate":"w"}`},
		{method: http.MethodPut, path: "/v1/policies/job?rule=strict", body: `{}`},
		{method: http.MethodDelete, path: "/v1/policies/job?x"},
	}, func(i *invalidInput) {
		_, query, _ := strings.Cut(i.path, "?")
		name, _, _ := strings.Cut(query, "=")
		if i.detail = `no parameter "` + name + `"`; i.headers == nil {
			i.headers = []string{jsonType}
		}
	}))
}

// A stream of events refuses an event ID that no stream can have sent.
func TestInvalidEventIDs(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []invalidInput
	for _, path := range []string{"/v1/locks/job/watch", "/v1/elections/job/observe"} {
		for _, id := range []string{
			"", " ", "x", "-1", "+1", "01", "1.0", "1e3", "0x1", "9223372036854775808", "1,2", "１",
		} {
			query := path + "?last_event_id=" + url.QueryEscape(id)
			inputs = append(inputs, invalidInput{path: path, headers: []string{"Last-Event-ID: " + id},
				detail: "Last-Event-ID must be"},
				invalidInput{path: query, detail: "last_event_id must be the id"})
		}
		inputs = append(inputs,
			invalidInput{path: path, headers: []string{"Last-Event-ID: 1", "Last-Event-ID: 1"},
				detail: "Last-Event-ID must be the id"},
			invalidInput{path: path + "?last_event_id=x", headers: []string{"Last-Event-ID: 1"},
				detail: "last_event_id must be the id"})
	}
	h.expectRefusals(t, changeEach(inputs, func(i *invalidInput) { i.method = http.MethodGet }))
}
