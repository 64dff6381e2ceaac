package jwks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
)

func (k *Keys) expect(t *testing.T, id string, want error) {
	t.Helper()
	if _, found, err := k.Find(id); !errors.Is(err, want) || (err == nil) != (len(found) == 1) {
		t.Errorf("the key %.20s: found %d, %v, want %v", id, len(found), err, want)
	}
}

func (k *Keys) reload(t *testing.T) {
	t.Helper()
	if err := k.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An unknown key is looked for once; then it is known that it does not exist. Many unknown keys cause no more than one
// reading in each retry interval, and only a few of them are awaited.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	k := New(issuer.URL, accessfile.Source{})
	k.expect(t, "key-1", ErrNotReady)
	k.reload(t)
	set := k.Set()
	k.expect(t, "key-1", nil)
	k.expect(t, "", nil)
	k.expect(t, "key-2", ErrNotReady)
	k.expect(t, strings.Repeat("k", keyIDMax+1), ErrUnknown)
	k.reload(t)
	k.expect(t, "key-2", ErrUnknown)
	if k.Set() != set {
		t.Error("the set is another one, though nothing has changed")
	}
	issuer.Rotate()
	k.reload(t)
	k.expect(t, "key-2", nil)
	k.expect(t, "", ErrNotReady)

	for n := 1; n < 2*pendingMax; n++ { // one is pending already
		want := ErrNotReady
		if n >= pendingMax {
			want = ErrUnknown
		}
		k.expect(t, fmt.Sprint("pending-", n), want)
	}
	k.expect(t, "pending-1", ErrNotReady)
	k.reload(t)
	k.expect(t, "pending-1", ErrUnknown)
	k.expect(t, "another", ErrNotReady)

	k.interval, k.retryInterval = time.Hour, 500*time.Millisecond // a reading takes less
	before, began := issuer.Reads(), time.Now()
	events := make(chan error, 100)
	go k.Run(t.Context(), func(err error) { events <- err })
	for n := 0; len(events) < 3; n++ {
		_, _, _ = k.Find(fmt.Sprint("unknown-", n))
	}
	if reads, most := issuer.Reads()-before, int(time.Since(began)/k.retryInterval)+1; reads > most {
		t.Errorf("the keys were read %d times, want at most %d", reads, most)
	}
}

// Known keys stay while the issuer can't be reached, or has none that are usable.
func TestKnownKeysStay(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	path := filepath.Join(t.TempDir(), "keys.json")
	write := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(issuer.KeySet())
	k := New(issuer.URL, accessfile.Source{JWKSFile: path})
	k.reload(t)
	for _, bad := range []string{"", "{", "{}", `{"keys":[{"kty":"oct","k":"AAAA","kid":"key-1"}]}`, strings.Repeat(" ", 10)} {
		write([]byte(bad))
		if k.Reload(t.Context()) == nil {
			t.Errorf("%q was read as keys", bad)
		}
		k.expect(t, "key-1", nil)
	}
	issuer.Rotate()
	write(issuer.KeySet())
	go k.Run(t.Context(), func(error) {})
	await.True(t, "the new key is there", func() bool { _, _, err := k.Find("key-2"); return err == nil })
}

// A key set may have keys that are not for signatures by others; they are not used.
func TestUnusableKeys(t *testing.T) {
	t.Parallel()
	elliptic256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: elliptic256.Public(), KeyID: "good"}, {Key: elliptic256, KeyID: "private"},
		{Key: elliptic256.Public(), KeyID: "encryption", Use: "enc"}, {Key: weak.Public(), KeyID: "weak"},
		{Key: []byte("secret"), KeyID: "symmetric"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse([]byte(strings.Replace(string(text), "[", `[{"kty":"new"},`, 1)))
	if err != nil || len(set.keys) != 1 || len(set.find("good")) != 1 {
		t.Errorf("read %v, %v, want the good key alone", set, err)
	}
}

// The credential for the key set is sent to the configured server only. Documents of other issuers, redirects, and
// URLs without encryption are refused.
func TestFetch(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	issuer.Want("Bearer secret")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fetch := func(issuerURL string, from accessfile.Source) error {
		return (&reading{}).fetch(t.Context(), issuerURL, from)
	}
	if err := fetch(issuer.URL, accessfile.Source{BearerTokenFile: file}); err != nil {
		t.Error(err)
	}
	var document string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, issuer.URL+"/keys", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(document))
	}))
	defer other.Close()
	for words, found := range map[string]string{
		"answered 503":     fmt.Sprintf(`{"issuer":%q,"jwks_uri":"%s/keys"}`, other.URL, issuer.URL),
		"is of the issuer": fmt.Sprintf(`{"issuer":%q,"jwks_uri":"%s/keys"}`, issuer.URL, issuer.URL),
		"https URL":        fmt.Sprintf(`{"issuer":%q,"jwks_uri":"http://example.com/keys"}`, other.URL),
		"can't be read":    "secret",
		"more than":        strings.Repeat(" ", 1<<20+1),
	} {
		document = found
		if err := fetch(other.URL, accessfile.Source{BearerTokenFile: file}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%.80s: %v, want an error with %q", found, err, words)
		}
	}
	redirected := accessfile.Source{JWKSURL: other.URL + "/redirect", BearerTokenFile: file}
	if err := fetch(issuer.URL, redirected); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("a redirect: %v", err)
	}
}

// FuzzParse checks that every key set is read or refused.
func FuzzParse(f *testing.F) {
	f.Add(issuertest.New(f).KeySet())
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"a"},{"kty":"OKP","crv":"Ed25519","x":""}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := Parse(text)
		if (err == nil) != (set != nil) {
			t.Errorf("read %v, %v", set, err)
		}
	})
}
