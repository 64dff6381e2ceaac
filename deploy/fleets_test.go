package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// fleet is two gateways before a database of its own, and its address at the proxy.
type fleet struct {
	database string
	address  string // of its own at the proxy
	gateways []*gateway.Process
	client   *lockclient.Client
}

// serve starts the gateways of the fleet in place of those that it has.
func (f *fleet) serve(t *testing.T, names string) {
	t.Helper()
	var again []*gateway.Process
	for i := range 2 {
		listen := network.FreeAddress(t)
		if f.gateways != nil {
			check(t, f.gateways[i].Stop())
			listen = strings.TrimPrefix(f.gateways[i].URL, "http://")
		}
		again = append(again, gateway.Serve(t, f.database, "--names", names, "--listen", listen))
	}
	f.gateways = again
}

// fleets are those of deploy/fleets/haproxy.cfg, before and while the prefix "us" moves from west to east.
type fleets struct {
	west, east fleet
	everywhere string // the address for all names
	client     *lockclient.Client
	config     string
	stopProxy  func()
}

func startFleets(t *testing.T) *fleets {
	t.Helper()
	f := &fleets{
		west: fleet{database: postgres.Migrated(t), address: network.FreeAddress(t)},
		east: fleet{database: postgres.Migrated(t), address: network.FreeAddress(t)}, everywhere: network.FreeAddress(t),
	}
	f.west.serve(t, "eu,us")
	f.east.serve(t, "asia")
	common, _, _ := strings.Cut(read(t, "haproxy/haproxy.cfg"), "frontend fencegate")
	f.config = common +
		withGateways(t, "fleets/haproxy.cfg", append(f.west.gateways, f.east.gateways...))
	f.config = replace(t, f.config, "bind :8080", "bind "+f.everywhere)
	f.config = replace(t, f.config, "bind :8081", "bind "+f.west.address)
	f.config = replace(t, f.config, "bind :8082", "bind "+f.east.address)
	f.client = clientOf(t, "http://"+f.everywhere)
	f.west.client, f.east.client = clientOf(t, "http://"+f.west.address), clientOf(t, "http://"+f.east.address)
	f.route(t, "west")
	return f
}

// route starts the proxy anew. It sends "us" to a backend.
func (f *fleets) route(t *testing.T, us string) {
	t.Helper()
	if f.stopProxy != nil {
		f.stopProxy()
	}
	f.stopProxy = startProxy(t, replace(t, f.config, "use_backend west if us", "use_backend "+us+" if us"))
	for _, each := range []*lockclient.Client{f.west.client, f.east.client} {
		await.True(t, "a gateway of each fleet is ready", func() bool { return each.API().Ready(t.Context()) == nil })
	}
}

// command runs a command as an operator does, and logs both: go test -v shows the transcript.
func command(t *testing.T, line ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	run := exec.CommandContext(t.Context(), line[0], line[1:]...)
	run.Stdout, run.Stderr = &out, &errs
	if err := run.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(line, " "), err, &out, &errs)
	}
	t.Logf("$ %s\n%s", strings.Join(line, " "), &out)
	return out.Bytes()
}

// TestSlow_Fleets checks that names are split over two databases by the proxy's rules, that what would need both is
// refused, and that a prefix moves from one to the other without a write of its former holder.
func TestSlow_Fleets(t *testing.T) {
	t.Parallel()
	postgres.Require(t, "psql")
	f := startFleets(t)
	for i := range 5 { // so the tokens of west are ahead
		f.hold(t, fmt.Sprint("eu/", i), "other")
	}
	zombie := f.hold(t, "us/job", "zombie")
	f.put(t, zombie, 1, "of the zombie", nil)
	asia := f.hold(t, "asia/job", "worker")
	f.put(t, asia, 1, "v", nil)
	f.recordIsIn(t, "us/job", &f.west, &f.east)
	f.recordIsIn(t, "asia/job", &f.east, &f.west)
	f.bothAreRefused(t, zombie, asia)
	f.pathsAreRouted(t)

	newest := f.closePrefix(t, zombie)
	f.route(t, "moving")
	if err := f.tryPut(t, f.client, zombie, 2, "late", nil); !errors.Is(err, lockclient.ErrUnavailable) ||
		errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("while the prefix moves, a write returned %v, expected unavailable and not applied", err)
	}
	f.west.serve(t, "eu")
	f.rejected(t, "a write to the former fleet", f.tryPut(t, clientOf(t, f.west.gateways[0].URL), zombie, 2, "late", nil),
		lockclient.ErrWrongFleet)
	command(t, "fleets/move-prefix", postgres.AsOwner(f.west.database), postgres.AsOwner(f.east.database), "us",
		fmt.Sprint(newest))
	f.east.serve(t, "asia,us")
	f.route(t, "east")

	f.rejected(t, "before the next grant", f.tryPut(t, f.client, zombie, 2, "late", nil), lockclient.ErrTokenStale)
	f.rejected(t, "on a name without a fence", f.tryPut(t, f.client, api.Lease{Lock: "us/new", FencingToken: newest}, 2, "late", nil),
		lockclient.ErrTokenUnknown)
	if lease := f.hold(t, "us/new", "next"); lease.FencingToken <= newest {
		t.Errorf("the token of a name without a fence is %d after the move, expected one above %d", lease.FencingToken, newest)
	}
	next := f.hold(t, "us/job", "next")
	f.put(t, next, 1, "of the next holder", new(int64(1))) // the version has moved, too
	f.rejected(t, "after the next grant", f.tryPut(t, f.client, zombie, 2, "late", nil), lockclient.ErrTokenStale)
	f.recordIsIn(t, "us/job", &f.east, nil)
	f.put(t, asia, 2, "w", nil) // other names have noticed nothing
}

// hold acquires a lease by the address for all names.
func (f *fleets) hold(t *testing.T, lock, owner string) api.Lease {
	t.Helper()
	lease, err := f.client.API().Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: owner, TTLMS: new(time.Hour.Milliseconds())})
	check(t, err)
	return lease
}

func (f *fleets) put(t *testing.T, lease api.Lease, sequence int64, value string, version *int64) {
	t.Helper()
	check(t, f.tryPut(t, f.client, lease, sequence, value, version))
}

func (f *fleets) tryPut(t *testing.T, client *lockclient.Client, lease api.Lease, sequence int64, value string, version *int64) error {
	t.Helper()
	_, err := client.API().Put(t.Context(), lease.Lock, "report", lockclient.Write{
		Token: api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}, Value: []byte(value), IfMatch: version,
	})
	return err
}

func (f *fleets) rejected(t *testing.T, what string, err, want error) {
	t.Helper()
	t.Logf("%s: %v", what, err)
	if !errors.Is(err, want) {
		t.Errorf("%s: the zombie's write returned %v, expected %v", what, err, want)
	}
}

// recordIsIn checks that the gateways of one fleet have the record, and that those of the other refuse the name.
func (f *fleets) recordIsIn(t *testing.T, resource string, in, other *fleet) {
	t.Helper()
	if _, err := in.client.API().Get(t.Context(), resource, "report"); err != nil {
		t.Errorf("the record of %s: %v", resource, err)
	}
	if other == nil {
		return
	}
	if _, err := other.client.API().Get(t.Context(), resource, "report"); !errors.Is(err, lockclient.ErrWrongFleet) {
		t.Errorf("the other fleet answered %v for %s, expected ErrWrongFleet", err, resource)
	}
}

// bothAreRefused checks that nothing is changed by what would concern both databases.
func (f *fleets) bothAreRefused(t *testing.T, west, east api.Lease) {
	t.Helper()
	both := api.TransactionRequest{
		Fences: []api.WriteToken{
			{Resource: west.Lock, FencingToken: &west.FencingToken, Sequence: new(int64(2))},
			{Resource: east.Lock, FencingToken: &east.FencingToken, Sequence: new(int64(2))},
		},
		Ops: []api.Op{{Op: "delete", Resource: west.Lock, Key: "report"}},
	}
	for where, client := range map[string]*lockclient.Client{"everywhere": f.client, "west": f.west.client, "east": f.east.client} {
		if _, err := client.API().Transaction(t.Context(), both); !errors.Is(err, lockclient.ErrWrongFleet) {
			t.Errorf("%s: a transaction on both fleets returned %v, expected ErrWrongFleet", where, err)
		}
	}
	subtree := api.AcquireRequest{OwnerID: "o", Scope: "subtree"}
	above := gateway.Serve(t, f.west.database, "--names", "eu/berlin")
	if _, err := clientOf(t, above.URL).API().Acquire(t.Context(), "eu", subtree); !errors.Is(err, lockclient.ErrWrongFleet) {
		t.Errorf("a subtree above the split was answered %v, expected ErrWrongFleet", err)
	}
}

// pathsAreRouted checks that the proxy decodes names as gateways do.
func (f *fleets) pathsAreRouted(t *testing.T) {
	t.Helper()
	for path, want := range map[string]int{
		"/v1/locks/us%2Fjob": 200, "/v1/locks/%75s/job": 200, "/v1/locks/asia%2fjob": 200, "/v1/elections/us%2Fjob": 200,
		"/v1/resources/us%2Fjob/records/report": 200, "/v1/locks/usa/job": 421, "/v1/locks": 421, "/v1/overview": 421,
	} {
		answer, err := http.Get("http://" + f.everywhere + path)
		check(t, err)
		var problem api.Problem
		_ = json.NewDecoder(answer.Body).Decode(&problem)
		_ = answer.Body.Close()
		if answer.StatusCode != want || want == 421 && problem.Code != api.CodeWrongFleet {
			t.Errorf("%s was answered %d %s, expected %d", path, answer.StatusCode, problem.Code, want)
		}
	}
}

// closePrefix takes the subtree lease that ends all other writes below the prefix. The zombie does not release its own.
func (f *fleets) closePrefix(t *testing.T, zombie api.Lease) (newest int64) {
	t.Helper()
	west := "--url=http://" + f.west.address
	command(t, process.Build(t), "lock", "break", zombie.Lock, west, "--reason", "us moves to another fleet")
	out := command(t, process.Build(t), "lock", "acquire", "us", west, "--subtree", "--wait=10m", "--ttl=24h", "--output=json")
	var lease api.Lease
	check(t, json.Unmarshal(out, &lease))
	f.rejected(t, "under the subtree lease", f.tryPut(t, f.client, zombie, 2, "late", nil), lockclient.ErrTokenStale)
	return lease.FencingToken
}
