//go:build unix

package docs_test

import (
	"crypto/md5" // as S3 makes an ETag
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// bucket serves objects as S3 does, as far as a document needs it: GET, and PUT with If-Match and If-None-Match.
func bucket(t *testing.T) (url string) {
	t.Helper()
	var mutex sync.Mutex
	objects := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		object, exists := objects[r.URL.Path]
		etag := fmt.Sprintf(`"%x"`, md5.Sum(object))
		match := r.Header.Get("If-Match")
		switch body, err := io.ReadAll(r.Body); {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		case r.Method == http.MethodGet && exists:
			w.Header().Set("ETag", etag)
			_, _ = w.Write(object)
		case r.Method == http.MethodGet, match != "" && !exists:
			w.WriteHeader(http.StatusNotFound)
		case match != "" && match != etag, r.Header.Get("If-None-Match") == "*" && exists:
			w.WriteHeader(http.StatusPreconditionFailed)
		default:
			objects[r.URL.Path] = body
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
