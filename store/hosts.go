package store

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// hosts are those of the database URL. The one that was connected to last is tried first, so that a host that does not
// answer delays one connection and not each. Without target_session_attrs any host would do, and the order stays the
// URL's.
type hosts struct {
	resolve pgconn.LookupFunc
	list    [][]*pgconn.FallbackConfig // of each host, with and without TLS
	chosen  bool                       // target_session_attrs says which hosts will do

	mu        sync.Mutex
	first     int
	addresses map[string]int // → index in list
}

// newHosts reads the hosts of a configuration, and makes it resolve their names through them.
func newHosts(config *pgx.ConnConfig) *hosts {
	h := &hosts{resolve: config.LookupFunc, chosen: config.ValidateConnect != nil, addresses: map[string]int{}}
	own := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	for _, each := range append([]*pgconn.FallbackConfig{own}, config.Fallbacks...) {
		last := len(h.list) - 1
		if last >= 0 && h.list[last][0].Host == each.Host && h.list[last][0].Port == each.Port {
			h.list[last] = append(h.list[last], each)
			continue
		}
		if network, address := pgconn.NetworkAddress(each.Host, each.Port); network == "unix" {
			h.addresses[address] = len(h.list)
		}
		h.list = append(h.list, []*pgconn.FallbackConfig{each})
	}
	config.LookupFunc = h.lookup
	return h
}

// lookup resolves the name of a host, and notes its addresses.
func (h *hosts) lookup(ctx context.Context, host string) ([]string, error) {
	found, err := h.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for index, each := range h.list {
		if each[0].Host != host {
			continue
		}
		maps.DeleteFunc(h.addresses, func(_ string, of int) bool { return of == index })
		for _, ip := range found {
			h.addresses[net.JoinHostPort(ip, strconv.Itoa(int(each[0].Port)))] = index
		}
	}
	return found, nil
}

// prefer has the host with an address tried first.
func (h *hosts) prefer(address string) { h.choose(address, 0) }

// postpone has the host with an address tried last.
func (h *hosts) postpone(address string) { h.choose(address, 1) }

func (h *hosts) choose(address string, offset int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if index, known := h.addresses[address]; known && h.chosen {
		h.first = (index + offset) % len(h.list)
	}
}

// order puts the hosts of a configuration into the order in which they should be tried.
func (h *hosts) order(config *pgx.ConnConfig) {
	h.mu.Lock()
	first := h.first
	h.mu.Unlock()
	ordered := slices.Concat(slices.Concat(h.list[first:], h.list[:first])...)
	config.Host, config.Port, config.TLSConfig = ordered[0].Host, ordered[0].Port, ordered[0].TLSConfig
	config.Fallbacks = ordered[1:]
}
