package jwks

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

const (
	keysMax    = 100
	rsaBitsMin = 2048
)

// Set has the keys by which signatures may be checked. It does not change.
type Set struct{ keys map[string][]jose.JSONWebKey }

// Parse reads a JSON Web Key Set. It leaves out keys that are not for signatures, that are no public keys, or of which
// it does not know the type.
func Parse(text []byte) (*Set, error) {
	var read struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("the key set can't be read: %w", err)
	}
	if len(read.Keys) > keysMax {
		return nil, fmt.Errorf("the key set has %d keys, the limit is %d", len(read.Keys), keysMax)
	}
	set := &Set{map[string][]jose.JSONWebKey{}}
	for _, one := range read.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(one, &key) == nil && isUsable(key) {
			set.keys[key.KeyID] = append(set.keys[key.KeyID], key)
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("the key set has no usable key")
	}
	return set, nil
}

func isUsable(key jose.JSONWebKey) bool {
	if public, ok := key.Key.(*rsa.PublicKey); ok && public.N.BitLen() < rsaBitsMin {
		return false
	}
	return key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig")
}

// find returns the keys with this ID. Without an ID it returns the only key, if there is only one.
func (s *Set) find(id string) []jose.JSONWebKey {
	if id == "" && len(s.keys) == 1 {
		for _, keys := range s.keys {
			return keys
		}
	}
	return s.keys[id]
}
