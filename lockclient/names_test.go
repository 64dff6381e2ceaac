package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func TestNamesArriveAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	var raw, decoded string
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, decoded = r.URL.EscapedPath(), r.URL.Path
		writeProblem(w, api.Problem{Status: 404, Code: api.CodeNotFound})
	})
	client := newAPI(t, url+"/behind%2Fproxy/")

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
	url, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL.EscapedPath())
	})
	client, ctx := newAPI(t, url), context.Background()

	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/watch", "records", "a/records/b", "fence/x",
		"acquire", "renew", "release", "break",
	} {
		for call, err := range map[string]error{
			"Lock":     second(client.Lock(ctx, name)),
			"Acquire":  second(client.Acquire(ctx, name, api.AcquireRequest{OwnerID: "w"})),
			"Put":      second(client.Put(ctx, "fine", name, lockclient.Write{})),
			"Delete":   second(client.Delete(ctx, name, "fine", lockclient.Write{})),
			"Records":  second(client.Records(ctx, name, lockclient.RecordsQuery{})),
			"Election": second(client.Election(ctx, name)),
		} {
			wantErr(t, fmt.Sprintf("%s of %q", call, name), err, lockclient.ErrInvalidName)
		}
	}
	for _, election := range []string{"campaign", "a/resign", "observe/b"} {
		wantErr(t, "Election of "+election, second(client.Election(ctx, election)), lockclient.ErrInvalidName)
		err := client.Resign(ctx, election, api.ResignRequest{Candidate: "w"})
		wantErr(t, "Resign of "+election, err, lockclient.ErrInvalidName)
	}
}
