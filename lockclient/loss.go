package lockclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// holderLookupMax bounds the request for the holder, by which the error of a loss may come later.
const holderLookupMax = 500 * time.Millisecond

// Loss is what this process knows about the loss of a lease: see [LossOf].
type Loss struct {
	// Paused is for how long this process did not run, at least, if that is why the lease was not renewed; 0: it is not,
	// or was not measured. The clock is the monotonic one of this machine, which may miss the time of a suspended system.
	Paused time.Duration
	// Holder is the newer lease on the lock, at the moment at which a call has found the loss. It is nil if there was
	// none, if the caller may not see it, or if no gateway answered within half a second.
	Holder *api.LockHolder
}

// LossOf returns what is known about the loss of a lease that err reports. It is the zero Loss for other errors.
func LossOf(err error) Loss {
	var failed *Error
	if errors.As(err, &failed) && failed.loss != nil {
		return failed.loss.get()
	}
	var lost *LostError
	if errors.As(err, &lost) && lost.loss != nil {
		return lost.loss.get()
	}
	return Loss{}
}

// loss is the Loss of one lease. All errors of the lease share it.
type loss struct {
	asked sync.Once
	mu    sync.Mutex
	known Loss
}

func (l *loss) get() Loss {
	if l == nil {
		return Loss{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// notePause keeps the first pause.
func (l *loss) notePause(paused time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.Paused == 0 {
		l.known.Paused = paused
	}
}

func (l *loss) noteHolder(holder api.LockHolder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known.Holder = &holder
}

// text is for the end of an error's text.
func (l *loss) text() string {
	known := l.get()
	var parts []string
	if known.Paused > 0 {
		parts = append(parts, fmt.Sprintf("this process did not run for at least %.1f s", known.Paused.Seconds()))
	}
	if holder := known.Holder; holder != nil {
		parts = append(parts, fmt.Sprintf("%s has held the lock since %s",
			holder.OwnerID, holder.GrantedAt.Format(time.RFC3339)))
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// askForHolder asks once which newer lease the lock has. It does not ask after ctx has ended, but for the loss itself.
func (l *Lease) askForHolder(ctx context.Context) {
	if ctx.Err() != nil && !isLost(context.Cause(ctx)) || l.granted.Mode == "shared" {
		return
	}
	l.loss.asked.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holderLookupMax)
		defer cancel()
		state, err := l.client.API().Lock(ctx, l.granted.Lock)
		if err != nil {
			return
		}
		for _, holder := range state.Holders {
			if holder.FencingToken > l.granted.FencingToken {
				l.loss.noteHolder(holder)
			}
		}
	})
}
