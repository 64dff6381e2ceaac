package writes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// dashboardZombies is how many writes a second zombies make while dashboards are measured: viewers of a quiet
// one cost little.
const dashboardZombies = 100

// dashboards measures what writers are left with while people look at dashboards of the gateway. Zombies write
// meanwhile, with dashboards and without.
func (r *rig) dashboards(ctx context.Context) error {
	zombies, undelayed, err := r.prepareZombies(ctx)
	if err != nil {
		return err
	}
	refused := measurement{target: undelayed, setting: r.setting(zombies, 1), rate: dashboardZombies}
	for round := range r.config.Rounds {
		for _, honest := range r.only(nameHTTP) {
			writing := r.measurement(honest, r.setting(r.layouts[0], slices.Max(r.config.Clients)))
			for _, open := range []int{0, r.config.Dashboards} {
				if err := r.watched(ctx, open, writing, refused, round+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// watched measures writers while so many dashboards are open.
func (r *rig) watched(ctx context.Context, open int, writing, zombies measurement, round int) error {
	crowd, err := openDashboards(ctx, r.gatewayURL, open)
	if err != nil {
		return err
	}
	err = r.beside(ctx, writing, zombies, Case{Measure: Dashboards, Load: besideDashboards(open)}, round)
	received, crowdErr := crowd.close()
	if err = cmp.Or(err, crowdErr); err == nil && open > 0 {
		r.config.progress("%d dashboards received %d events meanwhile", open, received)
	}
	return err
}

func besideDashboards(open int) string {
	if open == 0 {
		return loadAlone
	}
	return fmt.Sprintf("beside %d dashboards", open)
}

// viewers are open dashboards: half of them show the overview, half the rejections.
type viewers struct {
	end      context.CancelFunc
	looking  *errgroup.Group
	received atomic.Int64
}

// openDashboards returns when each has loaded what its page loads, and has its stream.
func openDashboards(ctx context.Context, baseURL string, count int) (*viewers, error) {
	ctx, end := context.WithCancel(ctx)
	v := &viewers{end: end}
	v.looking, ctx = errgroup.WithContext(ctx)
	transport := &http.Transport{MaxIdleConnsPerHost: count}
	browser := &http.Client{Transport: transport}
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	var opening sync.WaitGroup
	for i := range count {
		opening.Add(1)
		opened := sync.OnceFunc(opening.Done)
		v.looking.Go(func() error {
			defer opened()
			err := v.look(ctx, browser, baseURL, i%2 == 0, opened)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the dashboard was stopped
			}
			return fmt.Errorf("a dashboard's stream has ended: %w", err)
		})
	}
	opening.Wait()
	if err := context.Cause(ctx); err != nil {
		_, err = v.close()
		return nil, err
	}
	return v, nil
}

// look loads a page's first data, and then reads its stream until ctx ends.
func (v *viewers) look(ctx context.Context, browser *http.Client, baseURL string, overview bool, opened func()) error {
	first, stream := "/v1/rejections?sort=last_seen&limit=1000", "/v1/rejections/stream"
	if overview {
		first, stream = "/v1/overview?range_ms=300000", "/v1/overview/stream"
	}
	if err := v.read(ctx, browser, baseURL+first, func() {}); err != nil {
		return err
	}
	if err := v.read(ctx, browser, baseURL+stream, opened); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// read takes an answer to its end, and counts the events in it.
func (v *viewers) read(ctx context.Context, browser *http.Client, url string, begun func()) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := browser.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s: status %d", errAnswer, url, answer.StatusCode)
	}
	begun()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte("event: ")) {
			v.received.Add(1)
		}
	}
	return lines.Err()
}

// lineBytesMax is more than the longest answer on one line.
const lineBytesMax = 64 << 20

// close ends the dashboards, and returns how many events they received.
func (v *viewers) close() (received int64, err error) {
	v.end()
	return v.received.Load(), v.looking.Wait()
}
