package lockclient_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/lockclient"
)

func TestNewRefusesInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, baseURL := range []string{
		"", "127.0.0.1:8080", "localhost:8080", "ftp://host", "http://", "http://host?x=1", "http://host?", "http://host#x",
		"http://host:port", "http://user:secret@host?x", "http://user:secret@%zz",
	} {
		client, err := lockclient.New(baseURL)
		if err == nil || client != nil {
			t.Errorf("New accepted %q", baseURL)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("New of %q returned %q, which has the password in it", baseURL, err)
		}
	}
}

func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	base := strings.Replace(server.URL, "http://", "http://user:secret@", 1)
	client := newAPI(t, base)

	foreign := client.Ready(context.Background())
	server.Close()
	unanswered := client.Ready(context.Background())
	for _, err := range []error{foreign, unanswered} {
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "user:xxxxx@") {
			t.Errorf("got %v, expected an error with the URL and without the password", err)
		}
	}
}

func TestUserAgentIsSent(t *testing.T) {
	t.Parallel()
	var got string
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.UserAgent()
		_, _ = w.Write([]byte(`{"status":"ready"}`))
	})
	if err := newAPI(t, url).Ready(context.Background()); err != nil || got != "fencegate-lockclient" {
		t.Errorf("the default User-Agent is %q, %v", got, err)
	}
	client := newAPI(t, url, lockclient.WithUserAgent("shop/7"), lockclient.WithHTTPClient(http.DefaultClient))
	if err := client.Ready(context.Background()); err != nil || got != "shop/7" {
		t.Errorf("the User-Agent is %q, %v, expected shop/7", got, err)
	}
}

func TestCloseClosesConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"ready"}`))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	client := newClient(t, server.URL)
	for range 2 { // a closed client connects again
		if err := client.API().Ready(context.Background()); err != nil {
			t.Fatal(err)
		}
		client.Close()
		<-closed
	}
	newClient(t, server.URL, lockclient.WithHTTPClient(server.Client())).Close()
}
