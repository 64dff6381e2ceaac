package lockclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func TestNamesArriveAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	var raw, decoded string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, decoded = r.URL.EscapedPath(), r.URL.Path
		writeProblem(w, api.Problem{Status: 404, Code: api.CodeNotFound})
	}))
	defer server.Close()
	client := newAPI(t, server.URL+"/behind%2Fproxy/")

	for name, path := range map[string]string{
		"job-42":         "job-42",
		"accounts/42":    "accounts/42",
		"a b/ü?#%;,&=+$": "a%20b/%C3%BC%3F%23%25%3B%2C&=+$",
		"a%2Fb":          "a%252Fb",
		"...":            "...",
		"a/b..c":         "a/b..c",
		"acquired":       "acquired",
		"\xff\n":         "%FF%0A",
	} {
		_, err := client.Get(context.Background(), name, name)
		if !errors.Is(err, lockclient.ErrNotFound) {
			t.Errorf("%q: got %v, want the server's not_found", name, err)
		}
		if want := "/behind%2Fproxy/v1/resources/" + path + "/records/" + path; raw != want {
			t.Errorf("%q: the path was %s, want %s", name, raw, want)
		}
		if want := "/behind/proxy/v1/resources/" + name + "/records/" + name; decoded != want {
			t.Errorf("%q: the path was read as %s, want %s", name, decoded, want)
		}
	}
}

func TestNamesThatWouldArriveAsOthersAreNotSent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL.EscapedPath())
	}))
	defer server.Close()
	client, ctx := newAPI(t, server.URL), context.Background()

	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/watch", "records", "a/records/b", "fence/x",
		"acquire", "renew", "release", "break",
	} {
		_, lockErr := client.Lock(ctx, name)
		_, acquireErr := client.Acquire(ctx, name, api.AcquireRequest{OwnerID: "w"})
		_, putErr := client.Put(ctx, "fine", name, lockclient.Write{})
		_, deleteErr := client.Delete(ctx, name, "fine", lockclient.Removal{})
		_, recordsErr := client.Records(ctx, name, lockclient.RecordsQuery{})
		_, fenceErr := client.Fence(ctx, name)
		_, electionErr := client.Election(ctx, name)
		for _, err := range []error{electionErr, lockErr, acquireErr, putErr, deleteErr, recordsErr, fenceErr} {
			if !errors.Is(err, lockclient.ErrInvalidName) {
				t.Errorf("%q: got %v, want invalid_name", name, err)
			}
		}
	}
	for _, election := range []string{"campaign", "a/resign", "observe/b"} {
		_, readErr := client.Election(ctx, election)
		_, campaignErr := client.Campaign(ctx, election, api.CampaignRequest{Candidate: "w"})
		resignErr := client.Resign(ctx, election, api.ResignRequest{Candidate: "w"})
		for _, err := range []error{readErr, campaignErr, resignErr} {
			if !errors.Is(err, lockclient.ErrInvalidName) {
				t.Errorf("%q: got %v, want invalid_name", election, err)
			}
		}
	}
}
