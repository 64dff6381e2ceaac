package top

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/fencegate/fencegate/gateway/api"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) api.Time { return api.Time{Time: noon.Add(d)} }

func point(accepted, stale, p99 float64) api.OverviewPoint {
	half := p99 / 2
	return api.OverviewPoint{At: at(0), OverviewRates: &api.OverviewRates{
		AcceptedPerS: accepted, RejectedPerS: map[api.Code]float64{api.CodeTokenStale: stale}, P50MS: &half, P99MS: &p99,
	}}
}

// busyView is a gateway in use, with a zombie whose name tries to steer the terminal.
func busyView() View {
	token, superseded, late, sequence := int64(33), int64(34), int64(83_000), int64(2)
	return View{
		URL: "http://127.0.0.1:8080", Span: 5 * time.Minute, Panel: PanelRejections, At: noon, Now: noon, Width: 120,
		Height: 30,
		Snapshot: Snapshot{
			Overview: api.Overview{
				At: at(0),
				OverviewState: api.OverviewState{
					Inventory: &api.Inventory{At: at(0), Locks: 1203, Held: 40, Expiring: 2, Expired: 1, Waiting: 7,
						OldestWaitMS: 12_345, Sessions: 3, TablesEnforce: 4, TablesObserve: 1, TablesWithProblems: 1},
					Database: api.OverviewDatabase{State: api.DatabaseOK, DatabaseFacts: &api.DatabaseFacts{
						Version: "15.18", SizeBytes: 312_400_000, Connections: 23, ConnectionsMax: 100, NewestToken: 84_321,
						RejectedBySQL: map[api.Code]int64{api.CodeTokenStale: 1200, api.CodeTokenRequired: 3},
					}},
					Gateways: []api.OverviewGateway{
						{GatewayID: "a", Name: "a:8080", Version: "v1", State: api.GatewayServing, StartedAt: at(-2 * time.Hour), SeenAt: at(0),
							Waiting: 7, Streams: 2, ConnectionsBusy: 3, ConnectionsMax: 16, Listening: true, Self: true},
						{GatewayID: "b", Name: "b:8080", Version: "v1", State: api.GatewaySilent, StartedAt: at(-time.Hour), SeenAt: at(-time.Minute),
							ConnectionsMax: 16},
					},
				},
				Points: []api.OverviewPoint{point(0, 0, 4), point(600, 0, 8), {At: at(0)}, point(1234.4, 12, 16)},
			},
			Rejections: []api.Rejection{
				{ID: 2, Resource: "jobs/42", Key: "state", Code: api.CodeTokenStale, Reason: "superseded", Token: &token,
					Sequence: &sequence, SupersededBy: &superseded, LateMS: &late, OwnerID: "worker-1", Source: "http", Count: 1200, GrantedToken: 34, LastToken: 34, LastSequence: 1,
					FirstAt: at(-time.Minute), LastAt: at(-3 * time.Second)},
				{ID: 1, Resource: "jobs/\x1b[2Jevil\n", Key: "", Code: api.CodeTokenRequired, Source: "sql", Count: 1, FirstAt: at(0),
					LastAt: at(0)},
			},
			Locks: []api.Lock{
				{Lock: "jobs/42", State: "held", FencingToken: 34,
					Holders: []api.LockHolder{{OwnerID: "worker-2", FencingToken: 34, Mode: "exclusive", Scope: "node", TTLMS: 30_000,
						GrantedAt: at(-9 * time.Second), ExpiresAt: at(21 * time.Second)}},
					Queue:       []api.Waiter{{OwnerID: "worker-3", Mode: "exclusive", QueuedAt: at(-12 * time.Second)}},
					QueueLength: 7},
				{Lock: "idle", State: "free", FencingToken: 3},
			},
		},
	}
}

// The screens are kept as they are meant to look: go test ./internal/top -update.
func TestScreens(t *testing.T) {
	lost := busyView()
	lost.Lost, lost.Now = errors.New("dial tcp 127.0.0.1:8080: connection refused"), noon.Add(12*time.Second)
	paused, locks, gateways, narrow, away, fresh := busyView(), busyView(), busyView(), busyView(), busyView(),
		View{URL: "http://127.0.0.1:8080", Now: noon, Width: 80, Height: 24}
	paused.Paused, paused.Now = true, noon.Add(90*time.Second)
	locks.Panel, gateways.Panel = PanelLocks, PanelGateways
	narrow.Width, narrow.Height = 60, 20
	away.Overview.Database = api.OverviewDatabase{State: api.DatabaseUnavailable, Detail: "connection refused"}
	away.Overview.Inventory, away.Rejections = nil, nil
	help, filtered, typing, rejection, lock, gateway := busyView(), busyView(), busyView(), busyView(), busyView(), busyView()
	help.Help = true
	filtered.Filter, filtered.Row = "SUPERSEDED", 5
	typing.Filter, typing.Typing, typing.Panel = "nowhere", true, PanelLocks
	rejection.Detail, lock.Detail = rejection.Rejections[0], api.Lock{Lock: "jobs/42"}
	gateway.Detail = api.OverviewGateway{GatewayID: "gone", Name: "gone:8080", StartedAt: at(-time.Hour), SeenAt: at(-time.Minute)}
	for name, view := range map[string]View{
		"help": help, "filtered": filtered, "typing": typing, "rejection": rejection, "lock": lock, "gateway": gateway,
		"rejections": busyView(), "lost": lost, "paused": paused, "locks": locks, "gateways": gateways, "narrow": narrow,
		"away": away, "fresh": fresh,
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, Screen(view), view) })
	}
	t.Run("report", func(t *testing.T) {
		view := busyView()
		view.Height = 0
		golden(t, "report", Report(view, 1), view)
	})
}

func golden(t *testing.T, name string, screen []string, view View) {
	t.Helper()
	if view.Height > 0 && len(screen) > view.Height {
		t.Errorf("%d lines on a terminal of %d", len(screen), view.Height)
	}
	for _, line := range screen {
		if ansi.StringWidth(line) > view.Width {
			t.Errorf("%d cells on a terminal of %d: %s", ansi.StringWidth(line), view.Width, line)
		}
	}
	got, path := strings.Join(screen, "\n")+"\n", "testdata/"+name+".txt"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("drawn:\n%s\nwant:\n%s", got, want)
	}
}

// No text that others chose steers the terminal, with colours or without.
func TestNothingSteersTheTerminal(t *testing.T) {
	for _, colour := range []bool{false, true} {
		view := busyView()
		view.Colour, view.Width = colour, 200
		text := strings.Join(Screen(view), "\n")
		if strings.Contains(text, "\x1b[2J") || strings.Contains(ansi.Strip(text), "\x1b") ||
			!strings.Contains(text, "evil") {
			t.Errorf("drawn: %q", text)
		}
		if colour != strings.Contains(text, "\x1b[") {
			t.Errorf("with colour %v it drew %q", colour, text)
		}
	}
}

// Whatever the terminal's size and however far it is scrolled, what is drawn fits.
func TestEverySizeFits(t *testing.T) {
	for width := 1; width < 140; width += 7 {
		for height := 1; height < 30; height += 3 {
			for scroll := range 4 {
				view := busyView()
				view.Width, view.Height, view.Row, view.Colour = width, height, scroll, true
				view.Help, view.Typing = scroll == 1, scroll == 2
				if scroll == 3 {
					view.Detail = view.Locks[0]
				}
				for _, line := range Screen(view) {
					if ansi.StringWidth(line) > width {
						t.Fatalf("%d×%d: %q", width, height, line)
					}
				}
			}
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		values []float64
		width  int
		want   string
	}{
		{nil, 10, ""},
		{[]float64{1}, 0, ""},
		{[]float64{0, 0}, 10, "▁▁"},
		{[]float64{0, 1, 2, 4, 8}, 10, "▁▂▃▅█"},
		{[]float64{8, math.NaN(), 8}, 10, "█ █"},
		{[]float64{0, 8, 0, 0, math.NaN(), math.NaN()}, 3, "█▁ "},
	} {
		if got := sparkline(c.values, c.width); got != c.want {
			t.Errorf("%v in %d cells is %q, want %q", c.values, c.width, got, c.want)
		}
	}
}

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1234567): "1,234,567", count(-1234): "-1,234", count(-123): "-123",
		rate(0): "0/s", rate(0.25): "0.2/s", rate(99.94): "99.9/s", rate(1234.5): "1,235/s",
		bytesText(1023): "1,023 B", bytesText(1024): "1.0 KiB", bytesText(312_400_000): "297.9 MiB",
		span(90 * time.Millisecond): "90 ms", span(1200 * time.Millisecond): "1.2 s", span(59 * time.Second): "59 s",
		span(250 * time.Second): "4 m 10 s",
		span(time.Hour):         "1 h", span(185 * time.Minute): "3 h 5 m", span(52 * time.Hour): "2 d 4 h",
		span(-time.Second):  "-1 s",
		fit("ab", 4, false): "ab  ", fit("ab", 4, true): "  ab", fit("abcdef", 4, true): "abc…", fit("日本語", 4, false): "日… ",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
