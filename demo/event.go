package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Event is something that happened. With --output json it is one line.
type Event struct {
	// Event is round, database, service, servers, gateway, policy, asked, granted, held, unavailable, working, checked, sent, written,
	// rejected, stored, failed or result; or what goes wrong: frozen, thawed, cut, healed, delayed, delivered,
	// heartbeat_failed, lost, resumed, and with Redis also waiting, server (what a server has at the key of the lock),
	// killed, promoted, jumped (its clock), overlap (two leases run); of Access also key (one is made or ended), accepted
	// and refused.
	Event string `json:"event"`
	// Variant is fenced or unfenced.
	Variant string `json:"variant,omitempty"`
	// Actor is the worker that did it: A or B; worker-1 to worker-5 in a Loop; the caller in Access; empty for the demo
	// itself.
	Actor     string     `json:"actor,omitempty"`
	At        time.Time  `json:"at"`
	Token     int64      `json:"token,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Code      string     `json:"code,omitempty"`
	// GrantedToken is the newest token by the fence. Where another service issues them, it is that of the last write.
	GrantedToken int64  `json:"granted_token,omitempty"`
	Value        string `json:"value,omitempty"`
	// Fenced and Unfenced are what each variant stored in the end. OK is true if only the fenced one kept the newer value.
	Fenced   string `json:"fenced,omitempty"`
	Unfenced string `json:"unfenced,omitempty"`
	OK       *bool  `json:"ok,omitempty"`
	// Text is the event in words.
	Text string `json:"text"`
}

// printer prints events as they happen.
type printer struct {
	mu    sync.Mutex
	out   io.Writer
	json  bool
	shown []string // all if empty
	begun time.Time
	// actor is the width of the column of actors.
	actor int
}

func newPrinter(c Config) *printer {
	return &printer{out: c.Out, json: c.JSON, shown: c.Shown, begun: time.Now(), actor: 2}
}

// Narrate calls a demo with what prints its events, whose Actors are at most so long. The demo's context ends after a
// minute, and when nobody reads the output any more.
func (c Config) Narrate(
	ctx context.Context, actorLength int, demonstrate func(ctx context.Context, print func(Event)) error,
) (err error) {
	ctx, ended := endedWithReader(ctx, &c.Out, &err)
	defer ended()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	printer := newPrinter(c)
	printer.actor = actorLength
	return demonstrate(ctx, printer.print)
}

func (n *printer) print(event Event) {
	if len(n.shown) > 0 && !slices.Contains(n.shown, event.Event) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if event.At.IsZero() {
		event.At = time.Now()
	}
	event.At = event.At.UTC()
	if n.json {
		_ = json.NewEncoder(n.out).Encode(event)
		return
	}
	switch event.Event {
	case "round", "result":
		_, _ = fmt.Fprintf(n.out, "\n%s\n", event.Text)
	default:
		_, _ = fmt.Fprintf(n.out, "%7.2fs  %-*s %s\n", event.At.Sub(n.begun).Seconds(), n.actor, event.Actor, event.Text)
	}
}
