//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
)

// gateway is a process of fencegate at an address that it keeps when it is started again, and a client of it.
type gateway struct {
	*lockclient.API

	url      string
	database string
	address  string
	args     []string
	process  *gatewayprocess.Process
}

// startGateway serves a new database.
func startGateway(t *testing.T, args ...string) *gateway {
	t.Helper()
	return startGatewayOn(t, pgtest.Migrated(t), args...)
}

// startGatewayOn serves a database until the test ends.
func startGatewayOn(t *testing.T, database string, args ...string) *gateway {
	t.Helper()
	g := &gateway{database: database, address: freeAddress(t), args: args}
	g.url = "http://" + g.address
	g.start(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := lockclient.New(g.url, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	check(t, err)
	t.Cleanup(client.Close)
	g.API = client.API()
	return g
}

// freeAddress is one where nobody listens, of a port that the system gives nobody who doesn't ask for it: it is still free when the gateway
// comes back to it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		check(t, listener.Close())
		return address
	}
	t.Fatal("no port is free")
	return ""
}

// start runs the process, and sees to it that it ends with the test.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	path := fencegate(t) // it may have to be built, which takes its time
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := append([]string{"--listen", g.address, "--database-url", g.database}, g.args...)
	process, err := gatewayprocess.Start(ctx, path, args...)
	check(t, err)
	g.process = process
	t.Cleanup(func() {
		process.Kill()
		checkLog(t, process.Log())
	})
}

// kill ends the process as a crash does.
func (g *gateway) kill() { g.process.Kill() }

func fencegate(t *testing.T) string {
	t.Helper()
	path, err := program()
	check(t, err)
	return path
}

// checkLog fails the test for what a gateway never logs while its database is there.
func checkLog(t *testing.T, log string) {
	t.Helper()
	for _, sign := range []string{"DATA RACE", "panic", "level=ERROR"} {
		if strings.Contains(log, sign) {
			t.Errorf("the gateway logged %s:\n%s", sign, log[max(0, len(log)-8<<10):])
			return
		}
	}
}
