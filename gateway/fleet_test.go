package gateway

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/endpoint"
)

// TestOtherFleetsNames checks that a gateway refuses every request on a name that it does not serve, also a subtree
// above its prefixes, and that such a request changes nothing.
func TestOtherFleetsNames(t *testing.T) {
	h := newHarness(t, Config{Names: []string{"eu", "us/east"}})
	lease := h.acquire(t, "eu/1", "w")
	h.unchanged(t, func() {
		for template, rule := range accessRules {
			if rule.Names != endpoint.NameInPath || rule.IsPublic() {
				continue
			}
			for _, name := range []string{"us", "us/west/1", "europe", "us%2Fwest"} {
				method, path, _ := strings.Cut(template, " ")
				path = strings.ReplaceAll(path, "{"+rule.Variable+"}", name)
				got := h.send(t, method, strings.ReplaceAll(path, "{key}", "k"), `{"owner_id":"w"}`, jsonType)
				if got.status != http.StatusMisdirectedRequest || method != http.MethodHead &&
					!strings.Contains(string(got.body), string(api.CodeWrongFleet)) {
					t.Errorf("%s was answered %d %s, expected wrong_fleet", got.request, got.status, got.body)
				}
			}
		}
		other := lease
		other.Lock = "us/west"
		verdicts, _ := h.bulk(t, putLine(other, 1, "k", "1"))
		if len(verdicts) != 1 || verdicts[0].Code != api.CodeWrongFleet {
			t.Errorf("the verdicts are %+v, expected wrong_fleet", verdicts)
		}
		both := api.TransactionRequest{
			Fences: []api.WriteToken{{Resource: "eu/1", FencingToken: &lease.FencingToken}},
			Ops:    []api.Op{{Op: "put", Resource: "us/west", Key: "k", Value: []byte("2")}},
		}
		expectProblem(t, h.transact(t, both), api.CodeWrongFleet)
	})
	as[api.WriteResult](t, h.put(t, lease, 1, "v"), http.StatusCreated)
	h.acquire(t, "us/east", "w")

	if _, err := New(Config{Names: []string{"eu/"}}, nil, nil, nil); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("the prefix eu/ was answered %v, expected ErrInvalidConfig", err)
	}
}
