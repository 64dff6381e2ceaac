package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
)

// A token is accepted if its issuer has signed it for this gateway and it is valid now, and never otherwise.
func TestTokens(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	d := newDirectory(t, issuer, accessFile)
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	at := func(after time.Duration) int64 { return time.Now().Add(after).Unix() }
	claims := func(changed map[string]any) string { return issuer.Token(changed) }
	signed := func(algorithm jose.SignatureAlgorithm, key any, id string) string {
		return issuertest.Sign(algorithm, jose.JSONWebKey{Key: key, KeyID: id}, issuer.Claims(nil))
	}
	good := claims(nil)
	parts := strings.Split(good, ".")
	encoded := base64.RawURLEncoding.EncodeToString
	for about, c := range map[string]struct {
		token string
		want  Reason
	}{
		"good":                      {good, Accepted},
		"one of two audiences":      {claims(map[string]any{"aud": []string{"x", "other"}}), Accepted},
		"expired within the leeway": {claims(map[string]any{"exp": at(-10 * time.Second)}), Accepted},
		"expired":                   {claims(map[string]any{"exp": at(-time.Minute)}), Expired},
		"no end":                    {claims(map[string]any{"exp": nil}), Unknown},
		"not valid yet":             {claims(map[string]any{"nbf": at(time.Minute)}), Unknown},
		"issued in the future":      {claims(map[string]any{"iat": at(time.Minute)}), Unknown},
		"another audience":          {claims(map[string]any{"aud": "fencegate2"}), Unknown},
		"no audience":               {claims(map[string]any{"aud": nil}), Unknown},
		"another issuer":            {claims(map[string]any{"iss": issuer.URL + "/"}), Unknown},
		"no issuer":                 {claims(map[string]any{"iss": nil}), Unknown},
		"no subject":                {claims(map[string]any{"sub": nil}), Unknown},
		"empty subject":             {claims(map[string]any{"sub": ""}), Unknown},
		"long subject":              {claims(map[string]any{"sub": strings.Repeat("a", 200)}), Unknown},
		"unprintable subject":       {claims(map[string]any{"sub": "al\nice"}), Unknown},
		"unreadable grants":         {claims(map[string]any{"grants": "wirte:a"}), Unknown},
		"another's key, same ID":    {signed(jose.ES256, foreign, "key-1"), Unknown},
		"a symmetric algorithm":     {signed(jose.HS256, issuer.KeySet()[:64], "key-1"), Malformed},
		"no algorithm":              {encoded([]byte(`{"alg":"none","kid":"key-1"}`)) + "." + parts[1] + ".", Malformed},
		"no signature":              {parts[0] + "." + parts[1] + ".", Unknown},
		"another payload": {parts[0] + "." + encoded([]byte(`{"iss":"`+issuer.URL+`","sub":"root"}`)) + "." + parts[2],
			Unknown},
		"a payload that is no JSON": {parts[0] + "." + encoded([]byte("{")) + "." + parts[2], Malformed},
		"too large":                 {claims(map[string]any{"x": strings.Repeat("x", tokenMax)}), Malformed},
		"an encrypted token":        {good + ".a.b", Malformed},
		"no token":                  {"secret", Malformed},
	} {
		if _, got := d.show(c.token); got != c.want {
			t.Errorf("%s: judged %q, want %q", about, got, c.want)
		}
	}
	p, _ := d.show(claims(map[string]any{"grants": []string{"read:a", "observe:"}}))
	if got := describe(p); got != "local:alice token lock:jobs write:jobs read:a observe:" {
		t.Errorf("the principal is %s, want its name after the issuer's, and the grants of the rule and of the claim", got)
	}
	p, _ = d.show(claims(map[string]any{"sub": "bob", "grants": "read:a lock:b"}))
	if got := describe(p); got != "local:bob token lock:b read:a" {
		t.Errorf("the principal is %s, want the grants of the claim alone", got)
	}
}

// TestAlgorithmOfKey checks that a key which names its algorithm verifies no signature of another one, though it could.
func TestAlgorithmOfKey(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: private.Public(), KeyID: "named", Algorithm: string(jose.RS256)}, {Key: private.Public(), KeyID: "any"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.json")
	writeFile(t, path, string(set))
	issuer := issuertest.New(t)
	d := newDirectory(t, issuer, strings.Replace(accessFile, "ISSUER", "ISSUER\n    jwks_file: "+path, 1))
	for _, c := range []struct {
		algorithm jose.SignatureAlgorithm
		id        string
		want      Reason
	}{
		{jose.RS256, "named", Accepted}, {jose.PS256, "named", Unknown}, {jose.RS512, "named", Unknown},
		{jose.PS256, "any", Accepted},
	} {
		key := jose.JSONWebKey{Key: private, KeyID: c.id}
		d.expect(t, issuertest.Sign(c.algorithm, key, issuer.Claims(nil)), c.want)
	}
}

// A remembered token ends at its end, and when its issuer withdraws the key. A token of a new key is accepted once the
// keys are read again; until then the client may retry.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	issuer := issuertest.New(t)
	d := newDirectory(t, issuer, accessFile)
	old := issuer.Token(nil)
	d.expect(t, old, Accepted)
	issuer.Rotate()
	renewed := issuer.Token(nil)
	d.expect(t, renewed, NotReady)
	issuer.SetDown(true)
	for _, one := range d.current.Load().issuers {
		if one.keys.Reload(t.Context()) == nil {
			t.Error("the keys were read from an issuer that is down")
		}
	}
	d.expect(t, old, Accepted)
	d.expect(t, renewed, NotReady)
	issuer.SetDown(false)
	d.reload(t)
	d.expect(t, old, Accepted)
	d.expect(t, renewed, Accepted)

	issuer.Withdraw()
	d.reload(t)
	d.expect(t, old, NotReady)
	d.reload(t)
	d.expect(t, old, Unknown)
	d.expect(t, renewed, Accepted)
	d.now = func() time.Time { return time.Now().Add(time.Hour + 10*time.Second) }
	d.expect(t, renewed, Accepted)
	d.now = func() time.Time { return time.Now().Add(time.Hour + time.Minute) }
	d.expect(t, renewed, Expired)
}

// FuzzToken checks that no text is accepted but the tokens that the issuer has signed.
func FuzzToken(f *testing.F) {
	issuer := issuertest.New(f)
	d := newDirectory(f, issuer, accessFile)
	good := issuer.Token(nil)
	for _, seed := range []string{good, good[:len(good)-2], strings.ToLower(good), "..", "a.b.c", "eyJhbGciOiJub25lIn0.e30."} {
		f.Add(seed)
	}
	parts := strings.SplitN(good, ".", 3)
	f.Fuzz(func(t *testing.T, text string) {
		for _, token := range []string{text, text + "." + parts[1] + "." + parts[2], parts[0] + "." + text + "." + parts[2],
			parts[0] + "." + parts[1] + "." + text} {
			if _, reason := d.show(token); reason == Accepted && decoded(token) != decoded(good) {
				t.Errorf("%q was accepted", token)
			}
		}
	})
}

// decoded returns the bytes of the parts of a token. The last character of a part has bits that mean nothing.
func decoded(token string) (parts [3]string) {
	for i, part := range strings.SplitN(token, ".", 3) {
		text, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			return [3]string{}
		}
		parts[i] = string(text)
	}
	return parts
}
