package lockclient_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

// A client sends the greatest token that it was granted on a name with its next acquire or campaign there.
func TestNewestTokenIsSent(t *testing.T) {
	t.Parallel()
	var sent []int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			NewestToken int64 `json:"newest_token"`
			NewestTerm  int64 `json:"newest_term"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		sent = append(sent, max(body.NewestToken, body.NewestTerm))
		token := int64(10 * len(sent))
		var answer any = api.Lease{Lock: "job", LeaseID: "id", FencingToken: token, TTLMS: 3_600_000}
		if r.URL.Path == "/v1/elections/leader/campaign" {
			answer = api.Term{Election: "leader", LeaseID: "id", Term: token, TTLMS: 3_600_000}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer gateway.Close()
	client := newClient(t, gateway.URL)
	ctx := await.Context(t)
	for range 2 {
		_, err := client.Acquire(ctx, "job")
		check(t, err)
		_, err = client.Campaign(ctx, "leader", nil)
		check(t, err)
	}
	if want := []int64{0, 0, 10, 20}; !slices.Equal(sent, want) {
		t.Errorf("the acquires and campaigns were sent with the tokens %d, want %d", sent, want)
	}
}
