package store_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// lockOwners are hostile as far as an owner can be.
var lockOwners = []string{"worker-1", "worker-2", "WORKER-1", `<img src=x onerror="x">`,
	`o'; drop table fence.leases; --`, "%", `\`, "\u202eowner", "@owner"}

// lockSetup makes locks of all kinds, with leases and lines of all kinds. Nothing of it changes by itself for hours.
type lockSetup struct {
	*testbed
	random   *rand.Rand
	sessions []uuid.UUID // some of them over
	gateways []uuid.UUID // the last of them dead
}

func newLockSetup(t *testing.T, seed uint64) *lockSetup {
	t.Helper()
	s := &lockSetup{testbed: newTestbed(t), random: rand.New(rand.NewPCG(seed, 0))}
	for place := range 3 {
		gateway := uuid.New()
		s.exec(t, "insert into fence.gateways values ($1, clock_timestamp() + $2 * interval '1 hour')", gateway,
			[]int{9, 9, -9}[place])
		s.gateways = append(s.gateways, gateway)
	}
	for place := range 6 {
		session, err := s.CreateSession(t.Context(), store.SessionRequest{OwnerID: lockOwners[place], TTL: store.TTLMax})
		if err != nil {
			t.Fatal(err)
		}
		s.sessions = append(s.sessions, session.ID)
	}
	return s
}

// endSessions ends the last sessions but two, with their leases still there: one by its owner, one by expiry.
func (s *lockSetup) endSessions(t *testing.T) {
	t.Helper()
	s.exec(t, `update fence.sessions set ended_at = clock_timestamp(), end_reason = 'released' where session_id = $1`,
		s.sessions[0])
	s.exec(t, `update fence.sessions set expires_at = clock_timestamp() - interval '5 minutes', check_at = '-infinity' where session_id = $1`, s.sessions[1])
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// one makes a lock what it is to be.
func (s *lockSetup) one(t *testing.T, lock store.Name) {
	t.Helper()
	request := store.AcquireRequest{Lock: lock, OwnerID: pick(s.random, lockOwners),
		TTL: time.Hour + time.Duration(s.random.IntN(5))*time.Hour}
	holders := 1
	if s.random.IntN(4) == 0 {
		request.Mode, holders = store.Shared, 1+s.random.IntN(3)
	}
	if s.random.IntN(3) == 0 {
		request.TTL, request.SessionID = 0, pick(s.random, s.sessions)
	}
	for range s.random.IntN(3) {
		lease := s.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "before"})
		if err := s.Release(t.Context(), lease.Ref()); err != nil {
			t.Fatal(err)
		}
	}
	for range holders {
		request.OwnerID = pick(s.random, lockOwners)
		lease := s.granted(t, request)
		var err error
		switch s.random.IntN(6) {
		case 0:
			s.exec(t, "update fence.leases set expires_at = clock_timestamp() - interval '1 minute', check_at = '-infinity' where lock = $1 and fencing_token = $2", lock, lease.Token)
		case 1:
			err = s.Release(t.Context(), lease.Ref())
		case 2:
			_, err = s.Break(t.Context(), lock, "why not")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.line(t, lock)
}

func (s *lockSetup) granted(t *testing.T, request store.AcquireRequest) store.Lease {
	t.Helper()
	lease, err := s.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// line has some stand in line, and some who do not count.
func (s *lockSetup) line(t *testing.T, lock store.Name) {
	t.Helper()
	for range max(0, s.random.IntN(8)-3) {
		var session *uuid.UUID
		if s.random.IntN(3) == 0 {
			session = &s.sessions[s.random.IntN(len(s.sessions))]
		}
		s.exec(t, `
			insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, queued_at, deadline_at)
			values ($1, $2, $3, $4, 'node', 1000, $5, clock_timestamp(), clock_timestamp() + $6 * interval '1 hour')`,
			lock, pick(s.random, s.gateways), pick(s.random, lockOwners), pick(s.random, []string{"shared", "exclusive"}),
			session, pick(s.random, []int{2, 2, 2, -2}))
	}
}

// lockModel is how a lock must be shown, as far as lists show it: read row by row, and put together here.
type lockModel struct {
	name           string
	state          store.LockState
	token          int64
	holders, queue []string // owner and token; owner and mode
	owners         []string
	until, granted time.Time // zero where there is no holder
}

func (m lockModel) String() string {
	return fmt.Sprintf("%s %s %d %q %q", m.name, m.state, m.token, m.holders, m.queue)
}

func shownLock(lock store.Lock) string {
	m := lockModel{name: string(lock.Lock), state: lock.State, token: lock.Token}
	for _, holder := range lock.Holders {
		m.holders = append(m.holders, fmt.Sprint(holder.OwnerID, " ", holder.Token))
	}
	for _, waiter := range lock.Queue {
		m.queue = append(m.queue, fmt.Sprint(waiter.OwnerID, " ", waiter.Mode))
	}
	return m.String()
}

// model reads all locks, with the functions that decide on grants: fence.runs_until and fence.is_waiting.
func (b *testbed) model(t *testing.T) (models []lockModel) {
	t.Helper()
	rows, err := b.sql.Query(t.Context(), `
		select f.resource, f.granted_token, f.open from fence.fences f
		where f.granted_token > 0 or f.resource in (select w.lock from fence.waiters w)`)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for rows.Next() {
		var m lockModel
		var isOpen bool
		if err := rows.Scan(&m.name, &m.token, &isOpen); err != nil {
			t.Fatal(err)
		}
		open[m.name] = isOpen
		models = append(models, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for i := range models {
		b.modelOne(t, &models[i], open[models[i].name])
	}
	return models
}

func (b *testbed) modelOne(t *testing.T, m *lockModel, open bool) {
	t.Helper()
	late := ""
	rows, err := b.sql.Query(t.Context(), `
		select l.owner_id, l.fencing_token, l.granted_at, fence.runs_until(l), l.ended_at is null and fence.runs_until(l) > clock_timestamp()
		from fence.leases l where l.lock = $1 order by l.fencing_token`, m.name)
	if err != nil {
		t.Fatal(err)
	}
	m.state = store.LockFree
	var lateOwner string
	var lateUntil, lateGranted time.Time
	for rows.Next() {
		var owner string
		var token int64
		var granted, until time.Time
		var runs bool
		if err := rows.Scan(&owner, &token, &granted, &until, &runs); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(owner, " ", token)
		if runs {
			m.state, m.holders, m.owners = store.LockHeld, append(m.holders, text), append(m.owners, owner)
			m.until, m.granted = latest(m.until, until), latest(m.granted, granted)
		}
		if token == m.token {
			late, lateOwner, lateUntil, lateGranted = text, owner, until, granted
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if m.state == store.LockFree && open {
		m.state, m.holders, m.owners, m.until, m.granted = store.LockExpired, []string{late}, []string{lateOwner}, lateUntil,
			lateGranted
	}
	err = b.sql.QueryRow(t.Context(), `
		select array_agg(w.owner_id || ' ' || w.mode order by w.ticket) from fence.waiters w where w.lock = $1 and fence.is_waiting(w)`, m.name).Scan(&m.queue)
	if err != nil {
		t.Fatal(err)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// selected is what the query selects of the models, in its order.
func selected(models []lockModel, query store.LockQuery) (found []lockModel) {
	for _, m := range models {
		inOwner := slices.ContainsFunc(m.owners, func(owner string) bool { return strings.Contains(owner, query.Contains) })
		if strings.HasPrefix(m.name, query.Prefix) && (query.State == "" || m.state == query.State) &&
			(query.OwnerID == "" || slices.Contains(m.owners, query.OwnerID)) && (strings.Contains(m.name, query.Contains) ||
			inOwner) {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b lockModel) int {
		order := 1
		if query.Descending {
			order = -1
		}
		switch query.Sort {
		case store.LocksByToken:
			return cmp.Or(order*cmp.Compare(a.token, b.token), cmp.Compare(a.name, b.name))
		case store.LocksByWaiters:
			return cmp.Or(order*cmp.Compare(len(a.queue), len(b.queue)), cmp.Compare(a.name, b.name))
		case store.LocksByExpiry:
			return cmp.Or(compareTimes(a.until, b.until, order), cmp.Compare(a.name, b.name))
		case store.LocksByGrant:
			return cmp.Or(compareTimes(a.granted, b.granted, order), cmp.Compare(a.name, b.name))
		}
		return order * cmp.Compare(a.name, b.name)
	})
	return found
}

// compareTimes puts what has none last.
func compareTimes(a, b time.Time, order int) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return order * a.Compare(b)
}
