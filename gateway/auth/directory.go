package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/gateway/auth/jwks"
	"github.com/fencegate/fencegate/internal/access"
)

const (
	// fileInterval is how often the access file is read again.
	fileInterval = 2 * time.Second
	// verifiedMax is how many verified credentials of each kind are remembered, at most.
	verifiedMax = 10_000
)

// Directory knows the principals of tokens and client certificates, as an access file says.
//
// Run follows the file and the keys of its issuers. A file that can't be used leaves the former one in use. A credential
// that was verified is remembered by its digest, until the file or its issuer's keys change; its end is judged each time.
type Directory struct {
	path    string
	current atomic.Pointer[directoryVersion]
	logger  *slog.Logger

	now      func() time.Time
	interval time.Duration
}

// Observer counts what a Directory reads.
type Observer interface {
	// AccessFileFailed is called every 2 s while the file can't be used.
	AccessFileFailed()
	// IssuerKeysRead is called after each reading of the keys of an issuer.
	IssuerKeysRead(issuer string, err error)
}

// directoryVersion is the Directory of one version of the file.
type directoryVersion struct {
	text                 []byte
	file                 *accessfile.File
	issuers              map[string]*issuer
	tokens, certificates *lru.Cache[digest, *verified]
}

// issuer of tokens, with its keys.
type issuer struct {
	*accessfile.Issuer

	keys *jwks.Keys
}

// digest is the SHA-256 of a credential.
type digest = [sha256.Size]byte

// verified is a credential that was accepted.
type verified struct {
	principal *access.Principal
	issuer    *issuer   // of a token
	set       *jwks.Set // of the issuer, when the token was verified
}

// LoadDirectory reads an access file.
func LoadDirectory(path string, logger *slog.Logger) (*Directory, error) {
	d := &Directory{path: path, logger: logger, now: time.Now, interval: fileInterval}
	_, err := d.load()
	return d, err
}

// HasIssuers reports whether the file has issuers of tokens.
func (d *Directory) HasIssuers() bool { return len(d.current.Load().issuers) > 0 }

// HasCertificates reports whether the file maps certificates.
func (d *Directory) HasCertificates() bool { return d.current.Load().file.Certificates != nil }

// Run follows the file and the keys of the issuers until ctx ends.
func (d *Directory) Run(ctx context.Context, observer Observer) {
	for ctx.Err() == nil {
		d.runVersion(ctx, observer)
	}
}

// runVersion follows the keys of the current version until the next one is in use, or ctx ends.
func (d *Directory) runVersion(ctx context.Context, observer Observer) {
	version, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for _, issuer := range d.current.Load().issuers {
		running.Go(func() {
			var last lastError
			issuer.keys.Run(version, func(err error) {
				observer.IssuerKeysRead(issuer.Name, err)
				if last.changedTo(err) && err != nil {
					d.logger.Warn("keys of an issuer not read; the former ones are used", "issuer", issuer.Name, "error", err)
				}
			})
		})
	}
	tick := time.NewTicker(d.interval)
	defer tick.Stop()
	var last lastError
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := d.load()
		if err != nil {
			observer.AccessFileFailed()
		}
		if last.changedTo(err) && err != nil {
			d.logger.Warn("access file not reloaded; the former one is used", "error", err)
		}
		if changed {
			d.logger.Info("access file reloaded")
			return
		}
	}
}

// lastError is the text of an error that was logged; "" after a success.
type lastError string

func (l *lastError) changedTo(err error) bool {
	former := *l
	*l = ""
	if err != nil {
		*l = lastError(err.Error())
	}
	return *l != former
}

// load reads the file, and uses it if it has changed.
func (d *Directory) load() (changed bool, err error) {
	text, err := os.ReadFile(d.path)
	if err != nil {
		return false, err
	}
	former := d.current.Load()
	if former != nil && bytes.Equal(former.text, text) {
		return false, nil
	}
	file, err := accessfile.Parse(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", d.path, err)
	}
	d.current.Store(newDirectoryVersion(former, text, file))
	return true, nil
}

func newDirectoryVersion(former *directoryVersion, text []byte, file *accessfile.File) *directoryVersion {
	next := &directoryVersion{text: text, file: file, issuers: map[string]*issuer{}}
	next.tokens, _ = lru.New[digest, *verified](verifiedMax) // fails for a size below 1
	next.certificates, _ = lru.New[digest, *verified](verifiedMax)
	for _, read := range file.Issuers {
		keys := jwks.New(read.Issuer, read.Source)
		if former != nil && former.issuers[read.Issuer] != nil {
			if known := former.issuers[read.Issuer].keys; known.Are(read.Issuer, read.Source) {
				keys = known
			}
		}
		next.issuers[read.Issuer] = &issuer{read, keys}
	}
	return next
}
