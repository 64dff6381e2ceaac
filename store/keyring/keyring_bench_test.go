package keyring

import (
	"testing"

	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store"
)

// BenchmarkFind measures what each request with a key costs: reading the key, and finding its principal.
func BenchmarkFind(b *testing.B) {
	d := &database{}
	k := New(d)
	text, id, digest := apikey.New()
	keys := []store.LiveKey{{ID: id, Digest: digest, Principal: "p"}}
	for range 999 {
		keys = append(keys, newKey("other"))
	}
	d.set(keys...)
	if err := k.Reload(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id, digest, _ := apikey.Parse(text)
			if _, err := k.Find(id, digest); err != nil {
				b.Fatal(err)
			}
		}
	})
}
