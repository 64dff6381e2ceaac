package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// patroniConfig is the part of Patroni's configuration in its GET /config that decides what a failover loses, with
// Patroni's defaults. Times are in seconds.
type patroniConfig struct {
	SynchronousMode       bool  `json:"synchronous_mode"`
	SynchronousModeStrict bool  `json:"synchronous_mode_strict"`
	MaximumLagOnFailover  int64 `json:"maximum_lag_on_failover"`
	TTL                   int64 `json:"ttl"`
	LoopWait              int64 `json:"loop_wait"`
	RetryTimeout          int64 `json:"retry_timeout"`
}

var patroniDefaults = patroniConfig{MaximumLagOnFailover: 1 << 20, TTL: 30, LoopWait: 10, RetryTimeout: 10}

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
	return judgePatroni(node.Patroni.Version, config), nil
}

func judgePatroni(version string, c patroniConfig) (found []Finding) {
	add := func(check, subject, detail, advice string) {
		found = append(found, Finding{Severity: Warning, Check: check, Subject: subject, Detail: detail, Advice: advice})
	}
	if olderThan303(version) {
		add("patroni_version", "version", "is "+version, "With etcd3, a leader that was frozen takes its key back from its "+
			"successor, whose writes are lost. Use 3.0.3 or newer, or a watchdog on each node.")
	}
	switch {
	case !c.SynchronousMode:
		add("patroni_synchronous", "synchronous_mode", "is off", fmt.Sprintf("A failover may lose %d bytes of the write-ahead "+
			"log (maximum_lag_on_failover) and more. Set synchronous_mode and synchronous_mode_strict to true.",
			c.MaximumLagOnFailover))
	case !c.SynchronousModeStrict:
		add("patroni_synchronous", "synchronous_mode_strict", "is off", "A primary without a standby acknowledges writes "+
			"that it alone has, and a failover loses them. Set it to true: writes then wait for a standby.")
	}
	if c.TTL < c.LoopWait+2*c.RetryTimeout {
		add("patroni_ttl", "ttl", fmt.Sprintf("is %d, less than loop_wait + 2 * retry_timeout (%d)", c.TTL,
			c.LoopWait+2*c.RetryTimeout), "A leader that is alive can lose its key while it tries to renew it. Raise ttl, or "+
			"lower the others.")
	}
	return found
}

// olderThan303 reports whether a version of Patroni is older than 3.0.3.
func olderThan303(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return false
	}
	return major < 3 || major == 3 && minor == 0 && patch < 3
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
