package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/network"
)

// Profiles are served on --debug-listen only, for allowed hosts, and without the command line. Pages of other sites get
// none.
func TestDebugListen(t *testing.T) {
	t.Parallel()
	address := network.FreeAddress(t)
	s := newShell(t, "--debug-listen", address)
	for _, of := range []struct {
		url, host, site string
		status          int
	}{
		{"http://" + address + "/debug/pprof/", "", "none", http.StatusOK},
		{"http://" + address + "/debug/pprof/heap", "localhost", "", http.StatusOK},
		{"http://" + address + "/debug/pprof/heap", "rebound.test", "", http.StatusMisdirectedRequest},
		{"http://" + address + "/debug/pprof/heap", "", "cross-site", http.StatusMisdirectedRequest},
		{"http://" + address + "/debug/pprof/cmdline", "", "", http.StatusNotFound},
		{"http://" + address + "/v1/locks", "", "", http.StatusNotFound},
		{s.url + "/debug/pprof/", "", "", http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, of.url, nil)
		check(t, err)
		request.Host = of.host
		request.Header.Set("Sec-Fetch-Site", of.site)
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		_ = response.Body.Close()
		if response.StatusCode != of.status {
			t.Errorf("%s with Host %q and Sec-Fetch-Site %q was answered with %d, want %d", of.url, of.host, of.site,
				response.StatusCode, of.status)
		}
	}
}

// serve refuses a --debug-listen that other machines can reach, or that is taken, before it makes a database.
func TestDebugListenRefused(t *testing.T) {
	t.Parallel()
	for listen, words := range map[string]string{"0.0.0.0:0": "--insecure-no-auth", "127.0.0.1:99999": "invalid port"} {
		got := shell{t: t}.do("serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir()+"/data", "--debug-listen", listen)
		if got.code == exitOK || !strings.Contains(got.errOut, words) || !strings.Contains(got.errOut, "--debug-listen") {
			t.Errorf("serve --debug-listen %s exited with %d: %s", listen, got.code, got.errOut)
		}
	}
}
