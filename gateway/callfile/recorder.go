// Package callfile records what clients asked a gateway for and were answered, as lines of text that `fencegate-bench
// check-history` holds against the contract. docs/histories.md describes the lines.
package callfile

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Config configures a Recorder.
type Config struct {
	// Dir is a directory, which is made if it is missing.
	Dir string
	// Share is on how many of a hundred names calls are recorded: 1 to 100; 0: 100. A name is recorded by all gateways
	// or by none.
	Share int
	// BytesMax bounds the files; then the older half goes. Default 1 GiB, at least 1 MiB.
	BytesMax int64
	// Log is told when the disk ends the recording. Default: nobody.
	Log *slog.Logger
}

// linesQueued bounds the lines that wait for the disk. Beyond it, lines are left out: no call waits for a recording.
const linesQueued = 8192

// Recorder writes calls to a file. It is safe for concurrent use.
type Recorder struct {
	config  Config
	path    string
	began   time.Time
	lines   chan []byte
	left    atomic.Uint64 // lines that were left out
	closing chan struct{}
	closed  sync.WaitGroup
}

// New starts a recorder. It returns an error if the configuration is invalid or the file can't be made.
func New(config Config) (*Recorder, error) {
	if config.Share == 0 {
		config.Share = 100
	}
	if config.BytesMax == 0 {
		config.BytesMax = 1 << 30
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Share < 1 || config.Share > 100 || config.BytesMax < 1<<20 {
		return nil, errors.New("a share must be 1 to 100, and a bound at least 1 MiB")
	}
	if err := os.MkdirAll(config.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of histories: %w", err)
	}
	r := &Recorder{
		config: config, began: time.Now(), lines: make(chan []byte, linesQueued), closing: make(chan struct{}),
		path: filepath.Join(config.Dir, fmt.Sprintf("%s-%d.calls", time.Now().UTC().Format("20060102T150405"), os.Getpid())),
	}
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a history: %w", err)
	}
	r.closed.Go(func() { r.write(file) })
	return r, nil
}

// Close writes what is left. No call may be recorded after it. A nil Recorder has nothing to close.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	close(r.closing)
	r.closed.Wait()
}

// Path returns the file.
func (r *Recorder) Path() string { return r.path }

// write writes lines until the recorder is closed. An error of the disk ends the recording, and no more than that.
func (r *Recorder) write(file *os.File) {
	defer func() { _ = file.Close() }()
	buffered := bufio.NewWriterSize(file, 1<<16)
	flush := time.NewTicker(time.Second)
	defer flush.Stop()
	size, noted := int64(0), uint64(0)
	err := error(nil)
	for err == nil {
		select {
		case line := <-r.lines:
			size += int64(len(line))
			_, err = buffered.Write(line)
		case <-flush.C:
			if left := r.left.Load(); left > noted {
				noted = left
				_, _ = fmt.Fprintf(buffered, "# %d calls are not here: the disk was too slow\n", left)
			}
			err = buffered.Flush()
		case <-r.closing:
			for len(r.lines) > 0 {
				_, _ = buffered.Write(<-r.lines)
			}
			_ = buffered.Flush()
			return
		}
		if err == nil && size > r.config.BytesMax/2 {
			size = 0
			err = r.turnOver(&file, buffered)
		}
	}
	r.config.Log.Warn("calls are not recorded any more", "file", r.path, "error", err)
	for {
		select {
		case <-r.lines:
		case <-r.closing:
			return
		}
	}
}

// turnOver makes the file the older half, in place of the one before, and begins a new one.
func (r *Recorder) turnOver(file **os.File, buffered *bufio.Writer) error {
	err := errors.Join(buffered.Flush(), (*file).Close(), os.Rename(r.path, r.path+".old"))
	next, failed := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if failed == nil {
		*file = next
		buffered.Reset(next)
	}
	return errors.Join(err, failed)
}

// Call is one call under way. The zero value is one that is not recorded.
type Call struct {
	recorder *Recorder
	sent     time.Duration
}

// Begin is called before a call is passed on. The name is that of its lock or resource; "" for a session, which is
// always recorded.
func (r *Recorder) Begin(name store.Name) Call {
	if r.config.Share < 100 && name != "" && int(sum(name)%100) >= r.config.Share { // the same names by all gateways
		return Call{}
	}
	return Call{r, time.Since(r.began)}
}

// StandIn is written in place of a secret id: the same by all gateways, and of no use to anybody who reads it. An id is
// random, so it can't be found by trying.
func StandIn(id uuid.UUID) uuid.UUID {
	sum := sha256.Sum256(id[:])
	return uuid.UUID(sum[:16])
}

// sum is a number that differs for texts that differ, but by chance. It is the same in every process.
func sum[T ~[]byte | ~string](text T) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text))
	return hash.Sum64()
}
