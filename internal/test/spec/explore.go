package spec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/store"
)

// Model is a small system: three clients send requests, two gateways pass them on, and a database, which may fail over
// to its standby, decides them by State.Step. Explore visits all orders of what happens.
//
// A request is in flight until a gateway passes it to a database, which commits it or not; later the client receives
// the answer. Replication is asynchronous in one initial state, synchronous in the other. Delays need no steps of their
// own: a message that arrives late, a frozen client or gateway, a killed database is one that takes no steps for a
// while, or for ever, and all orders of steps contain that. A lost answer is one that is never received. Only two
// freezes are steps, since something else depends on them: D1 freezes, and is thawed after D2 was promoted. From then
// on D2 may serve as well, or be gone. A lease expires at any time, but only while a request waits for it. In
// asynchronous replication, what the standby has received is chosen at its promotion. For the same reason: nothing else
// depends on when it happens.
//
// Requests bounds the requests that clients send in a run, retries included. One failover happens, and one gateway is
// restarted. Every run within the bounds is explored.
type Model struct {
	Name     string
	Requests int    // the most that clients send in a run
	Without  Switch // what is left out; "" for nothing
	Promise  string // the only one to check, such as P3; "" for all

	resources []store.Name
	menu      func(w *world, c *client) []*Op // what a client may send
	failover  bool
	refuses   bool // an acquire that is not granted is refused; else it is delayed until it is granted
	held      bool // a write's transaction stays open, at READ COMMITTED, and has its locks
	snapshots bool // writes are judged by what there is when their transactions begin, as at REPEATABLE READ
}

func (m Model) on(s Switch) bool { return s != m.Without }

// Result is what Explore found: the shortest run that breaks a promise, if any does.
type Result struct {
	States      int    // that are different, whichever client or gateway is called what
	Steps       int    // from the start to the state that is the farthest from it
	Broken      string // the promise, such as P3; "" if none is broken
	How         string // it is broken
	Synchronous bool   // how D1 replicates in this run
	Run         []Event
}

// Event is a step of a run.
type Event struct {
	Actor string // a client A, B or C, a gateway G1 or G2, or a database D1 or D2
	Text  string
}

// node is how a state was reached: by the nth step from another one.
type node struct{ parent, nth int32 }

type reached struct {
	world world
	node  int32
}

// Explore visits all states breadth first, until a promise is broken.
func (m Model) Explore() Result {
	var nodes []node
	var next []reached
	keys := visited{known: map[uint64]struct{}{}}
	add := func(w *world, from node) {
		if keys.isNew(w) {
			next = append(next, reached{*w, int32(len(nodes))})
			nodes = append(nodes, from)
		}
	}
	for i, start := range m.starts() {
		add(&start, node{-1, int32(i)})
	}
	for depth := 0; ; depth++ {
		level := next
		next = nil
		for _, at := range level {
			nth := int32(-1)
			var broken *step
			m.steps(at.world, func(s *step) {
				nth++
				switch {
				case broken != nil:
				case s.broken != "":
					broken = s
				default:
					s.dropUnknown()
					add(&s.world, node{at.node, nth})
				}
			})
			if broken != nil {
				_, run := m.runTo(nodes, at.node)
				return Result{
					States: len(nodes), Steps: depth + 1, Broken: broken.broken, How: broken.how,
					Synchronous: broken.synchronous, Run: append(run, broken.event()),
				}
			}
		}
		if len(next) == 0 {
			return Result{States: len(nodes), Steps: depth}
		}
	}
}

// starts are the states to begin with: one, or with a standby, one for each way to replicate.
func (m Model) starts() []world {
	begin := State{without: m.Without}
	for _, name := range m.resources {
		begin = begin.with(name, Resource{})
	}
	w := world{databases: [2]*State{&begin, nil}, seen: [2]uint8{1, 1}}
	if !m.failover {
		return []world{w}
	}
	synchronous := w
	synchronous.synchronous = true
	return []world{w, synchronous}
}

// runTo returns the steps that lead to a node, and its state.
func (m Model) runTo(nodes []node, to int32) (world, []Event) {
	from := nodes[to]
	if from.parent < 0 {
		return m.starts()[from.nth], nil
	}
	w, run := m.runTo(nodes, from.parent)
	nth, then := int32(-1), world{}
	m.steps(w, func(s *step) {
		if nth++; nth == from.nth {
			s.dropUnknown()
			run, then = append(run, s.event()), s.world
		}
	})
	return then, run
}

// visited has the numbers of the states that were visited. States that differ only in what clients and gateways are
// called have the same number. Others have different ones, but for a chance of one in 10^7 among a million.
type visited struct {
	known   map[uint64]struct{}
	key     [2][]byte // by which gateway is taken for G1
	clients [3][]byte
}

var seed = maphash.MakeSeed()

func (v *visited) isNew(w *world) bool {
	number := maphash.Bytes(seed, v.of(w))
	_, known := v.known[number]
	v.known[number] = struct{}{}
	return !known
}

// of returns the state as bytes: G1 is the gateway that saw more, or that makes them less. They are valid until the
// next call.
func (v *visited) of(w *world) []byte {
	switch {
	case w.seen[0] < w.seen[1]:
		return v.as(w, 1)
	case w.seen[0] > w.seen[1] || !w.gatewaysMatter():
		return v.as(w, 0)
	}
	one, other := v.as(w, 0), v.as(w, 1)
	if bytes.Compare(other, one) < 0 {
		return other
	}
	return one
}

// gatewaysMatter reports whether a gateway has a request.
func (w *world) gatewaysMatter() bool {
	for c := range w.clients {
		for _, r := range w.clients[c].inFlight {
			if r.stage > sent && r.gateway != gone {
				return true
			}
		}
	}
	return false
}

// as returns the state as bytes, with the clients in the order of what they know and own. One that is done, and without
// requests, is like any other such.
func (v *visited) as(w *world, flip uint8) []byte {
	ranks, order := [3]byte{9, 9, 9}, [3]int{0, 1, 2}
	for c := range w.clients {
		v.clients[c] = w.appendClient(v.clients[c][:0], c, flip)
	}
	slices.SortFunc(order[:], func(a, b int) int { return bytes.Compare(v.clients[a], v.clients[b]) })
	for rank, c := range order {
		if len(v.clients[c]) > 1 {
			ranks[c] = byte(rank)
		}
	}
	b := v.key[flip][:0]
	b = append(b, byte(w.phase), w.requests, w.replicated, w.seen[flip], w.seen[1-flip],
		flags(w.synchronous, w.marked, w.restarted, w.forged))
	for _, c := range order {
		b = append(append(b, v.clients[c]...), '\n')
	}
	for d, s := range w.databases {
		if s != nil {
			b = s.appendKey(append(b, 'D'), ranks)
		}
		for _, e := range w.logs[d] {
			b = append(appendOp(b, e.Op), flags(e.Answered, e.Late))
			if e.after != nil && w.phase <= frozen { // what a standby may continue from
				b = append(b, byte(len(e.after.resources[0].resource.Running())))
			}
		}
	}
	v.key[flip] = b
	return b
}

// appendClient appends what is particular to a client.
func (w *world) appendClient(b []byte, c int, flip uint8) []byte {
	client := &w.clients[c]
	if client.done && client.inFlight == [2]request{} {
		return append(b, '-')
	}
	b = append(b, flags(client.done, client.awaits != nil), client.acquired, client.session[0])
	for _, op := range []*Op{client.awaits, client.holds, client.wrote} {
		b = appendOp(b, op)
	}
	first := len(b)
	b = appendRequest(b, client, 0, flip)
	second := len(b)
	b = appendRequest(b, client, 1, flip)
	if bytes.Compare(b[first:second], b[second:]) > 0 { // they have no order
		b = slices.Delete(append(b, b[first:second]...), first, second)
	}
	for d, s := range w.databases {
		if s == nil {
			continue
		}
		for i, of := range s.resources {
			for _, lease := range of.resource.leases {
				if ownerIndex(lease.Owner) == c {
					b = append(b, 'L', byte(d), byte(i), byte(lease.Token))
				}
			}
		}
		for place, waits := range s.queue {
			if ownerIndex(waits.Owner) == c {
				b = append(b, 'Q', byte(place))
			}
		}
	}
	return b
}

func appendRequest(b []byte, c *client, slot int, flip uint8) []byte {
	r := c.inFlight[slot]
	if r.stage == absent {
		return b
	}
	b = append(appendOp(b, r.op), byte(r.stage), byte(r.database), r.position, byte(r.token), byte(r.rests),
		byte(r.changed), flags(r.replay, r.op == c.awaits, r.gateway == gone))
	if r.stage > sent && r.gateway != gone {
		b = append(b, r.gateway^flip)
	}
	return b
}

// appendKey appends all of a state but its policies and the names of its resources, which no world changes. ranks are
// what the owners A, B and C are called.
func (s State) appendKey(b []byte, ranks [3]byte) []byte {
	number := func(numbers ...int64) {
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	for _, of := range s.resources {
		r := of.resource
		number(r.GrantedToken, r.LastToken, r.LastSequence, r.subtree, r.adopted, r.newestVersion, int64(len(r.leases)))
		b = append(b, flags(r.Open, r.lastCreated))
		b = append(append(b, r.lastContent...), 0)
		for _, l := range r.leases {
			number(l.Token, int64(l.TTL), l.GrantedAt, l.ExpiresAt, l.HoldUntil)
			b = append(append(b, l.Mode[0], l.Scope[0], l.ID[0], l.Session[0], ranks[ownerIndex(l.Owner)]), l.Request[1:]...)
			b = append(append(b, l.End...), flags(l.replaced, l.alone, l.settled))
		}
		for key, record := range r.records { // one at most
			number(record.Version, record.Token, record.Sequence)
			b = append(append(append(b, key...), record.Value...), 0)
		}
	}
	for _, session := range s.sessions {
		number(session.ExpiresAt)
		b = append(append(b, session.ID[0], ranks[ownerIndex(session.Owner)]), session.End...)
	}
	for i := range s.queue {
		b = append(appendOp(b, &s.queue[i]), ranks[ownerIndex(s.queue[i].Owner)])
	}
	return b
}

// appendOp appends an operation without its owner.
func appendOp(b []byte, op *Op) []byte {
	if op == nil {
		return append(b, '-')
	}
	b = append(append(append(b, op.Kind...), ' '), op.Name...)
	b = append(append(append(b, op.Mode...), op.Scope...), op.Value...)
	return append(b, byte(op.Token), byte(op.sequence()), flags(op.Wait > 0), op.Session[0], op.LeaseID[0])
}

func flags(on ...bool) (b byte) {
	for i, is := range on {
		if is {
			b |= 1 << i
		}
	}
	return b
}

func ownerIndex(owner string) int { return int(owner[0] - 'A') }

// step is one atomic step: an actor did something, and left this world. broken names the promise that it breaks.
type step struct {
	world
	model  Model
	actor  string
	text   string
	args   []any
	broken string
	how    string
}

func (s *step) says(actor, text string, args ...any) { s.actor, s.text, s.args = actor, text, args }

// check notes a promise that is broken, and how.
func (s *step) check(promise, how string) {
	if how != "" && s.broken == "" && (s.model.Promise == "" || s.model.Promise == promise) {
		s.broken, s.how = promise, how
	}
}

func (s *step) event() Event { return Event{Actor: s.actor, Text: fmt.Sprintf(s.text, s.args...)} }

// steps calls visit with every step that is possible in the world.
func (m Model) steps(w world, visit func(*step)) {
	if w.phase == frozen {
		m.promote(w, visit) // all else may as well come later
		return
	}
	m.clientSteps(w, visit)
	for c := range w.clients {
		for slot := range w.clients[c].inFlight {
			m.requestSteps(w, c, slot, visit)
		}
	}
	m.databaseSteps(w, visit)
	if m.failover {
		m.gatewaySteps(w, visit)
	}
}

func (m Model) after(w world) *step { return &step{world: w, model: m} }

func clientName(c int) string     { return [...]string{"A", "B", "C"}[c] }
func gatewayName(g uint8) string  { return [...]string{"G1", "G2"}[g] }
func (d database) String() string { return [...]string{"D1", "D2"}[d] }

// said is an operation, or its entry in a log, as a timeline has it. The name is left out if there is one lock only.
type said struct{ *Op }

// theName is the lock of worlds that have one.
const theName store.Name = "lock"

func (o said) String() string {
	text := string(o.Kind)
	switch {
	case o.Kind == Acquire && o.Token > 0:
		text = fmt.Sprintf("grant %d", o.Token)
	case o.Kind == Put:
		text = fmt.Sprintf("write %d.%d", o.Token, o.sequence())
	case o.Token > 0:
		text += fmt.Sprintf(" %d", o.Token)
	case o.Kind == Acquire && o.Wait > 0:
		text = "wait for"
	}
	if o.Mode == store.Shared {
		text += " shared"
	}
	if o.Scope == store.Subtree {
		text += " subtree"
	}
	if o.Name != theName && o.Name != "" {
		text += " " + string(o.Name)
	}
	if o.Value != "" {
		text += " (other content)"
	}
	return text
}

// Timeline draws the run: a column for each actor, a line for each step.
func (r Result) Timeline() string {
	width := map[string]int{}
	for _, e := range r.Run {
		width[e.Actor] = max(width[e.Actor], len(e.Text)+2)
	}
	var drawn strings.Builder
	line := func(text func(actor string) string) {
		var columns strings.Builder
		for _, actor := range []string{"A", "B", "C", "G1", "G2", "D1", "D2"} {
			if width[actor] > 0 {
				fmt.Fprintf(&columns, "%-*s", width[actor], text(actor))
			}
		}
		fmt.Fprintln(&drawn, strings.TrimRight(columns.String(), " "))
	}
	line(func(actor string) string { return actor })
	for _, e := range r.Run {
		line(func(actor string) string {
			if actor == e.Actor {
				return e.Text
			}
			return ""
		})
	}
	return drawn.String()
}
