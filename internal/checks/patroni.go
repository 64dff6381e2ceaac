package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
)

// patroniConfig is the part of Patroni's configuration in its GET /config that decides what a failover loses, with
// Patroni's defaults. Times are in seconds.
type patroniConfig struct {
	SynchronousMode       any   `json:"synchronous_mode"` // a boolean, or since version 4 "quorum"
	SynchronousModeStrict bool  `json:"synchronous_mode_strict"`
	TTL                   int64 `json:"ttl"`
	LoopWait              int64 `json:"loop_wait"`
	RetryTimeout          int64 `json:"retry_timeout"`
}

var patroniDefaults = patroniConfig{TTL: 30, LoopWait: 10, RetryTimeout: 10}

// patroniAnswerMax bounds an answer of Patroni, in bytes.
const patroniAnswerMax = 1 << 20

// Patroni returns what is to be found in the configuration of a Patroni cluster, by the REST API of one of its nodes.
// Watchdogs are not shown there. It returns an error if that does not answer.
func Patroni(ctx context.Context, client *http.Client, api string) ([]Finding, error) {
	var node struct{ Patroni struct{ Version string } }
	if err := getJSON(ctx, client, api, "patroni", &node); err != nil {
		return nil, err
	}
	config := patroniDefaults
	if err := getJSON(ctx, client, api, "config", &config); err != nil {
		return nil, err
	}
	var findings []Finding
	for _, c := range ofPatroni {
		findings = append(findings, c.finding(c.found(node.Patroni.Version, config)))
	}
	return findings, nil
}

// ofPatroni are the checks of the configuration of Patroni.
var ofPatroni = []struct {
	Check
	// found returns what is wrong; "": nothing.
	found func(version string, c patroniConfig) (subject, detail string)
}{
	{Check{
		Name: "patroni_version", Severity: Warning,
		Advice: "With etcd3, a leader that was frozen takes its key back from its successor, whose writes are lost. Use " +
			"3.0.3 or newer, or a watchdog on each node.",
		Cure: "pip install --upgrade 'patroni[etcd3]>=3.0.3'", Sound: "is 3.0.3 or newer",
	}, func(version string, _ patroniConfig) (string, string) {
		return either(olderThan(version, 3, 0, 3), "version", "is "+version)
	}},
	{Check{
		Name: "patroni_synchronous", Severity: Warning,
		Advice: "Without synchronous_mode, a failover may lose maximum_lag_on_failover bytes of the write-ahead log and more. " +
			"Without the strict one, a primary alone acknowledges writes, and the next failover loses them.",
		Cure: "patronictl edit-config -s synchronous_mode=true -s synchronous_mode_strict=true", Sound: "is on, and strict",
	}, func(version string, c patroniConfig) (string, string) {
		switch quorum := c.SynchronousMode == "quorum"; {
		case quorum && olderThan(version, 4, 0, 0):
			return "synchronous_mode", "is quorum, which Patroni " + version + " takes for off"
		case !quorum && c.SynchronousMode != true:
			return "synchronous_mode", "is off"
		}
		return either(!c.SynchronousModeStrict, "synchronous_mode_strict", "is off")
	}},
	{Check{
		Name: "patroni_ttl", Severity: Warning,
		Advice: "A leader that is alive can lose its key while it tries to renew it. Raise ttl, or lower the others.",
		Cure:   "patronictl edit-config -s ttl=20 -s loop_wait=1 -s retry_timeout=5",
		Sound:  "is long enough for a renewal",
	}, func(_ string, c patroniConfig) (string, string) {
		least := c.LoopWait + 2*c.RetryTimeout
		return either(c.TTL < least, "ttl",
			fmt.Sprintf("is %d, less than loop_wait + 2 * retry_timeout (%d)", c.TTL, least))
	}},
}

func either(found bool, subject, detail string) (string, string) {
	if found {
		return subject, detail
	}
	return "", ""
}

// NoPatroni returns that nothing is known of a failover manager.
func NoPatroni() Finding {
	return Check{Name: "failover_manager"}.unknown(
		"the database does not show what stops an old primary before another is promoted",
		"fencegate check --patroni-url http://NODE:8008")
}

// olderThan reports whether a version of Patroni is older than another.
func olderThan(version string, other ...int) bool {
	var parts [3]int
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &parts[0], &parts[1], &parts[2])
	return n == len(parts) && slices.Compare(parts[:], other) < 0
}

func getJSON(ctx context.Context, client *http.Client, api, path string, into any) error {
	target, err := url.JoinPath(api, path)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// GET /patroni has a status of its own for each state of the node.
	if err := json.NewDecoder(io.LimitReader(response.Body, patroniAnswerMax)).Decode(into); err != nil {
		return fmt.Errorf("%s is not answered as by Patroni: %w", target, err)
	}
	return nil
}
