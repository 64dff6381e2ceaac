package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestBadSessions(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	session := h.createSession(t, "worker", time.Hour)
	path := "/v1/sessions/" + session.SessionID
	json := []string{jsonType}
	inputs := []badInput{
		{name: "no owner", body: `{}`, detail: "owner_id is required"},
		{name: "owner long", body: `{"owner_id":"` + strings.Repeat("x", 257) + `"}`, detail: "owner_id has 257 bytes, the limit is 256"},
		{name: "owner with control", body: `{"owner_id":"\u0085"}`, detail: "owner_id has a control character"},
		{name: "ttl short", body: `{"owner_id":"w","ttl_ms":99}`, detail: "ttl_ms is 99, it must be 100 to 86400000"},
		{name: "ttl long", body: `{"owner_id":"w","ttl_ms":86400001}`, detail: "ttl_ms is 86400001"},
		{name: "ttl 0", body: `{"owner_id":"w","ttl_ms":0}`, detail: "ttl_ms is 0"},
		{name: "ttl a string", body: `{"owner_id":"w","ttl_ms":"30s"}`, detail: "ttl_ms has the wrong type"},
		{name: "metadata an array", body: `{"owner_id":"w","metadata":[]}`, detail: "metadata must be a JSON object"},
		{name: "metadata large", body: `{"owner_id":"w","metadata":{"a":"` + strings.Repeat("x", 4096-7) + `"}}`, detail: "metadata has 4097 bytes, the limit is 4096"},
		{name: "unknown field", body: `{"owner_id":"w","session_id":"` + noSession + `"}`, detail: "There is no field session_id"},
		{name: "parameter", path: "/v1/sessions?ttl_ms=1000", body: `{"owner_id":"w"}`, detail: `no parameter "ttl_ms"`},
		{name: "keepalive with a field", path: path + "/keepalive", body: `{"ttl_ms":1000}`, detail: "There is no field ttl_ms"},
		{name: "keepalive with an array", path: path + "/keepalive", body: `[]`, detail: "must be a JSON object"},
		{name: "keepalive with blanks", path: path + "/keepalive", body: ` `, detail: "empty"},
		{name: "keepalive with a parameter", path: path + "/keepalive?ttl_ms=1000", detail: `no parameter "ttl_ms"`},
	}
	for i := range inputs {
		if inputs[i].header = json; inputs[i].path == "" {
			inputs[i].path = "/v1/sessions"
		}
	}
	inputs = append(inputs,
		badInput{name: "no JSON", path: "/v1/sessions", body: `{"owner_id":"w"}`, status: http.StatusUnsupportedMediaType, detail: "application/json"},
		badInput{name: "keepalive of no JSON", path: path + "/keepalive", body: `{}`, status: http.StatusUnsupportedMediaType, detail: "application/json"},
		badInput{name: "get with a parameter", method: http.MethodGet, path: path + "?x=1", detail: `no parameter "x"`},
		badInput{name: "end with a parameter", method: http.MethodDelete, path: path + "?force=1", detail: `no parameter "force"`},
	)
	for id, refusal := range map[string]badInput{
		noSession: {code: api.CodeNotFound, status: http.StatusNotFound}, "x": {}, "%00": {}, "a/b": {}, "%7B" + noSession + "%7D": {}, strings.ReplaceAll(noSession, "-", ""): {},
		"00000000-0000-0000-0000-000000000000": {}, noSession + "0": {}, "urn:uuid:" + noSession: {},
	} {
		for _, call := range []badInput{{method: http.MethodPost, path: "/keepalive"}, {method: http.MethodGet}, {method: http.MethodDelete}} {
			refusal.name, refusal.method, refusal.path, refusal.detail = call.method+" "+id, call.method, "/v1/sessions/"+id+call.path, "session"
			inputs = append(inputs, refusal)
		}
	}
	h.refusedAll(t, inputs)
}

func TestBadElections(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	id := `"lease_id":"` + lease.LeaseID + `"`
	long := strings.Repeat("x", 257)
	inputs := []badInput{
		{name: "no candidate", path: "campaign", body: `{}`, detail: "candidate is required"},
		{name: "candidate null", path: "campaign", body: `{"candidate":null}`, detail: "candidate is required"},
		{name: "candidate long", path: "campaign", body: `{"candidate":"` + long + `"}`, detail: "candidate has 257 bytes, the limit is 256"},
		{name: "candidate with NUL", path: "campaign", body: `{"candidate":"\u0000"}`, detail: "candidate has a control character"},
		{name: "owner", path: "campaign", body: `{"owner_id":"w"}`, detail: "There is no field owner_id"},
		{name: "mode", path: "campaign", body: `{"candidate":"w","mode":"shared"}`, detail: "There is no field mode"},
		{name: "ttl short", path: "campaign", body: `{"candidate":"w","ttl_ms":99}`, detail: "ttl_ms is 99"},
		{name: "wait long", path: "campaign", body: `{"candidate":"w","wait_ms":600001}`, detail: "wait_ms is 600001"},
		{name: "session no UUID", path: "campaign", body: `{"candidate":"w","session_id":"s"}`, detail: "session_id is not one"},
		{name: "session and ttl", path: "campaign", body: `{"candidate":"w","ttl_ms":1000,"session_id":"` + noSession + `"}`, detail: "ttl_ms is set beside session_id"},
		{name: "session unknown", path: "campaign", body: `{"candidate":"w","session_id":"` + noSession + `"}`, code: api.CodeNotFound, status: http.StatusNotFound, detail: "session"},
		{name: "request empty", path: "campaign", body: `{"candidate":"w","request_id":""}`, detail: "request_id is empty"},
		{name: "request long", path: "campaign", body: `{"candidate":"w","request_id":"` + long + `"}`, detail: "request_id has 257 bytes"},
		{name: "value large", path: "campaign", body: `{"candidate":"w","value":"` + strings.Repeat("x", 3999) + `"}`, detail: "value has 4001 bytes, the limit is 4000"},
		{name: "value of blanks", path: "campaign", body: `{"candidate":"w","value":[` + strings.Repeat(" ", 3999) + `]}`, detail: "value has 4001 bytes, the limit is 4000"},
		{name: "value with a field twice", path: "campaign", body: `{"candidate":"w","value":{"a":1,"a":2}}`, detail: "The field value.a is there twice"},
		{name: "value that is no JSON", path: "campaign", body: `{"candidate":"w","value":x}`, detail: "value"},
		{name: "resign, no candidate", path: "resign", body: `{` + id + `,"term":1}`, detail: "candidate is required"},
		{name: "resign, no lease_id", path: "resign", body: `{"candidate":"w","term":1}`, detail: "lease_id is missing"},
		{name: "resign, lease_id short", path: "resign", body: `{"candidate":"w","lease_id":"1234","term":1}`, detail: "lease_id"},
		{name: "resign, no term", path: "resign", body: `{"candidate":"w",` + id + `}`, code: api.CodeInvalidToken, detail: "term is missing or 0"},
		{name: "resign, term negative", path: "resign", body: `{"candidate":"w",` + id + `,"term":-1}`, code: api.CodeInvalidToken, detail: "term is -1"},
		{name: "resign, term 2^53", path: "resign", body: `{"candidate":"w",` + id + `,"term":9007199254740992}`, code: api.CodeInvalidToken, detail: "1 to 2^53-1"},
		{name: "resign, term a string", path: "resign", body: `{"candidate":"w",` + id + `,"term":"1"}`, code: api.CodeInvalidToken, detail: "a JSON integer"},
		{name: "resign, fencing_token", path: "resign", body: `{"candidate":"w",` + id + `,"fencing_token":1}`, detail: "There is no field fencing_token"},
		{name: "resign of another", path: "resign", body: resignOf(api.Lease{OwnerID: "other", LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}), code: api.CodeLeaseLost, status: http.StatusConflict, detail: "mismatch"},
	}
	for i := range inputs {
		inputs[i].path, inputs[i].header = "/v1/elections/job/"+inputs[i].path, []string{jsonType}
	}
	for _, segment := range electionSegments {
		for _, name := range []string{segment, "a/" + segment, segment + "/a"} {
			inputs = append(inputs, badInput{name: name, path: "/v1/elections/" + name + "/campaign", body: `{"candidate":"w"}`, header: []string{jsonType},
				code: api.CodeInvalidName, detail: `"` + segment + `" is reserved`})
		}
	}
	inputs = append(inputs,
		badInput{name: "parameter", path: "/v1/elections/new/campaign?wait_ms=1", body: `{"candidate":"w"}`, header: []string{jsonType}, detail: `no parameter "wait_ms"`},
		badInput{name: "get with a parameter", method: http.MethodGet, path: "/v1/elections/job?x=1", detail: `no parameter "x"`},
		badInput{name: "get of none", method: http.MethodGet, path: "/v1/elections/none", code: api.CodeNotFound, status: http.StatusNotFound, detail: "none"})
	h.refusedAll(t, inputs)
}

func TestBadWatches(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []badInput
	for _, path := range []string{"/v1/locks/job/watch", "/v1/elections/job/observe"} {
		for _, id := range []string{"", " ", "x", "-1", "+1", "01", "1.0", "1e3", "0x1", "9223372036854775808", "1,2", "１"} {
			if id != " " { // which is ""
				inputs = append(inputs, badInput{path: path, header: []string{"Last-Event-ID: " + id}, detail: "Last-Event-ID must be the id"})
			}
			inputs = append(inputs, badInput{path: path + "?last_event_id=" + strings.ReplaceAll(strings.ReplaceAll(id, "+", "%2B"), " ", "%20"), detail: "last_event_id must be the id"})
		}
		inputs = append(inputs,
			badInput{path: path, header: []string{"Last-Event-ID: 1", "Last-Event-ID: 1"}, detail: "Last-Event-ID must be the id"},
			badInput{path: path + "?last_event_id=x", header: []string{"Last-Event-ID: 1"}, detail: "last_event_id must be the id"},
			badInput{path: path + "?last_event_id=1&last_event_id=1", detail: "is there 2 times"},
			badInput{path: path + "?after=1", detail: `no parameter "after"`})
	}
	for i := range inputs {
		inputs[i].name, inputs[i].method = inputs[i].path+strings.Join(inputs[i].header, " "), http.MethodGet
	}
	h.refusedAll(t, inputs)
}
