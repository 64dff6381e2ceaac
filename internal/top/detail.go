package top

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/printable"
)

// detailLines show the item of a row alone, as it is in the newest snapshot, or as it was last if it is not there.
func detailLines(p painter, v View) []string {
	d := &details{painter: p, now: v.Overview.At.Time}
	switch item := newestOf(v).(type) {
	case api.Rejection:
		d.rejection(item)
	case api.Lock:
		d.lock(item)
	case api.OverviewGateway:
		d.gateway(item)
	}
	return d.lines
}

// newestOf returns the item of the view in its snapshot.
func newestOf(v View) any {
	switch item := v.Detail.(type) {
	case api.Rejection:
		for _, r := range v.Rejections {
			if r.ID == item.ID {
				return r
			}
		}
	case api.Lock:
		for _, l := range v.Locks {
			if l.Lock == item.Lock {
				return l
			}
		}
	case api.OverviewGateway:
		for _, g := range v.Overview.Gateways {
			if g.GatewayID == item.GatewayID {
				return g
			}
		}
	}
	return v.Detail
}

// details collects lines, each of a name and a value.
type details struct {
	painter painter
	now     time.Time
	lines   []string
}

func (d *details) heading(text string) {
	d.lines = append(d.lines, "", d.painter.paint(bold, text))
}

// add leaves out what is empty.
func (d *details) add(name, value string) {
	if value != "" {
		d.lines = append(d.lines, "  "+d.painter.paint(dim, fit(name, 16, false))+printable.Text(value))
	}
}

func (d *details) rejection(r api.Rejection) {
	d.heading("Rejected write")
	d.add("resource", r.Resource)
	d.add("key", r.Key)
	d.add("code", string(r.Code))
	d.add("reason", r.Reason)
	if r.Token != nil {
		d.add("token", api.FencingToken{Token: *r.Token, Sequence: r.Sequence}.String())
	}
	if r.SupersededBy != nil {
		d.add("superseded by", strconv.FormatInt(*r.SupersededBy, 10))
	}
	d.add("newest granted", strconv.FormatInt(r.GrantedToken, 10))
	if r.LastToken > 0 {
		d.add("last accepted", api.FencingToken{Token: r.LastToken, Sequence: &r.LastSequence}.String())
	}
	if r.LateMS != nil {
		d.add("late by", span(milliseconds(*r.LateMS)))
	}
	d.add("owner", r.OwnerID)
	d.add("principal", r.Principal)
	d.add("address", r.Address)
	d.add("source", r.Source)
	d.add("writes", count(r.Count))
	d.add("first seen", d.when(r.FirstAt))
	d.add("last seen", d.when(r.LastAt))
}

func (d *details) lock(l api.Lock) {
	d.heading("Lock")
	d.add("lock", l.Lock)
	d.add("state", l.State)
	d.add("newest token", strconv.FormatInt(l.FencingToken, 10))
	for _, holder := range l.Holders {
		d.heading("Holder")
		d.add("owner", holder.OwnerID)
		d.add("principal", holder.Principal)
		d.add("token", strconv.FormatInt(holder.FencingToken, 10))
		d.add("mode", holder.Mode)
		d.add("scope", holder.Scope)
		d.add("granted", d.when(holder.GrantedAt))
		d.add("left", fmt.Sprintf("%s of %s", span(holder.ExpiresAt.Sub(d.now).Round(time.Millisecond)),
			span(milliseconds(holder.TTLMS))))
		d.add("metadata", string(holder.Metadata))
	}
	if l.QueueLength == 0 {
		return
	}
	d.heading(fmt.Sprintf("Queue: %s", count(l.QueueLength)))
	for i, waiter := range l.Queue {
		d.add(strconv.Itoa(i+1), fmt.Sprintf("%s (%s), since %s", waiter.OwnerID, waiter.Mode, d.when(waiter.QueuedAt)))
	}
}

func (d *details) gateway(g api.OverviewGateway) {
	d.heading("Gateway")
	d.add("name", g.Name)
	d.add("id", g.GatewayID)
	d.add("state", g.State)
	d.add("version", g.Version)
	d.add("started", d.when(g.StartedAt))
	d.add("seen", d.when(g.SeenAt))
	d.add("waiting", count(g.Waiting))
	d.add("streams", count(g.Streams))
	d.add("queued writes", count(g.Queue))
	d.add("connections", fmt.Sprintf("%d of %d", g.ConnectionsBusy, g.ConnectionsMax))
}

// when is a time, and how long ago it is.
func (d *details) when(at api.Time) string {
	text := at.UTC().Format(time.DateTime) + " UTC"
	if since := ago(d.now, at.Time); since != "now" {
		text += " (" + since + " ago)"
	}
	return text
}
