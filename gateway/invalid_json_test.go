package gateway

import (
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// PostgreSQL keeps a JSON text with an escaped NUL or half a surrogate pair, and then fails to read it: such a text is refused, naming the field.
func TestJSONThatPostgresCannotRead(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []badInput
	for name, text := range map[string]string{"NUL": `a\u0000b`, "high surrogate": `a\ud800b`, "low surrogate": `\udc00`} {
		for field, given := range map[string]string{"text": `"` + text + `"`, "inner text": `{"a":[1,{"b":"` + text + `"}]}`, "name": `{"` + text + `":1}`} {
			inputs = append(inputs,
				badInput{name: "value " + name + " " + field, path: electionPath("e", "/campaign"), body: `{"candidate":"w","value":` + given + `}`, header: []string{jsonType}, detail: "value"},
				badInput{name: "metadata " + name + " " + field, path: lockPath("l", "/acquire"), body: `{"owner_id":"w","metadata":{"value":` + given + `}}`, header: []string{jsonType}, detail: "metadata"},
				badInput{name: "session " + name + " " + field, path: "/v1/sessions", body: `{"owner_id":"w","metadata":{"value":` + given + `}}`, header: []string{jsonType}, detail: "metadata"})
		}
	}
	h.refusedAll(t, inputs)
	value := `"\\u0000 \ud83e\udd80"` // an escaped backslash, and a whole pair
	as[api.Term](t, h.campaign(t, "e", api.CampaignRequest{Candidate: "w", Value: []byte(value)}), http.StatusOK)
}

// A row with such a text, stored before it was refused, spoils no list: the elections are all shown.
func TestListsShowJSONThatPostgresCannotRead(t *testing.T) {
	h := newHarness(t, Config{})
	for _, election := range []string{"a", "b", "c", "d"} {
		as[api.Term](t, h.campaign(t, election, api.CampaignRequest{Candidate: "w", Value: []byte(`"x"`)}), http.StatusOK)
	}
	for election, text := range map[string]string{"b": `{"value":"a\u0000b"}`, "c": `{"value":"\\\ud800"}`, "d": `{"value":"\u0000","more":1}`} {
		if _, err := h.db.Exec(t.Context(), "update fence.leases set metadata = $2 where lock = $1", election, text); err != nil {
			t.Fatal(err)
		}
	}
	list := as[api.Elections](t, h.get(t, "/v1/elections"), http.StatusOK)
	if len(list.Elections) != 3 || list.Elections[1].Election != "b" || list.Elections[2].Election != "c" {
		t.Errorf("listed are %+v, want a, b and c", list.Elections)
	}
	for _, path := range []string{electionPath("b", ""), "/v1/locks", lockPath("b", ""), "/v1/leases", "/v1/overview"} {
		if got := h.get(t, path); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}
