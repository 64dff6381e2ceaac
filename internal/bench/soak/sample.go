package soak

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sample is what was measured at one time, by series.
type Sample struct {
	At     time.Duration
	Values map[Series]float64
}

// Series is one thing that is measured.
type Series struct {
	Kind kind
	// Of is the gateway, the table or the index.
	Of string
}

// sample measures until ctx ends.
func (r *rig) sample(ctx context.Context) (samples []Sample, err error) {
	for pause(ctx, r.config.Every) {
		s := Sample{time.Since(r.begun), map[Series]float64{}}
		for i, gateway := range r.gateways {
			err = s.addGateway(ctx, gatewayName(i), gateway.URL)
			if err != nil {
				break
			}
		}
		if err == nil {
			err = s.addDatabase(ctx, r.db)
		}
		if ctx.Err() != nil {
			break // not a whole sample
		}
		if err != nil {
			return samples, fmt.Errorf("measure: %w", err)
		}
		samples = append(samples, s)
		r.config.progress("%s", s.line())
	}
	return samples, nil
}

// ofGateway are the metrics of a gateway that are measured. Those of one kind are added up.
var ofGateway = map[string]kind{
	"process_resident_memory_bytes":                memory,
	"go_memstats_heap_alloc_bytes":                 heap,
	"go_goroutines":                                goroutines,
	"process_open_fds":                             descriptors,
	`fencegate_database_connections{state="busy"}`: pooled,
	`fencegate_database_connections{state="idle"}`: pooled,
}

func (s *Sample) addGateway(ctx context.Context, name, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		metric, text, _ := strings.Cut(lines.Text(), " ")
		kind, wanted := ofGateway[metric]
		if !wanted {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		s.Values[Series{kind, name}] += value
	}
	return lines.Err()
}

const (
	relationsSQL = `select relname::text, case relkind when 'r' then pg_table_size(c.oid) else pg_relation_size(c.oid) end
		from pg_class c where relnamespace = 'fence'::regnamespace and relkind in ('r', 'i')`
	databaseSQL = `select
		(select count(*) from fence.fences),
		(select count(*) from fence.leases) - (select count(distinct lock) from fence.leases),
		(select sum(n_dead_tup) from pg_stat_user_tables where schemaname = 'fence'),
		(select count(*) from pg_stat_activity where backend_type = 'client backend'),
		(select sum(size) from pg_ls_waldir()),
		pg_current_wal_lsn() - '0/0'::pg_lsn`
)

func (s *Sample) addDatabase(ctx context.Context, db *pgx.Conn) error {
	var used, leases, dead, open, log, written float64
	err := db.QueryRow(ctx, databaseSQL).Scan(&used, &leases, &dead, &open, &log, &written)
	if err != nil {
		return err
	}
	for kind, value := range map[kind]float64{
		names: used, endedLeases: leases, deadRows: dead, connections: open, logFiles: log, logWritten: written,
	} {
		s.Values[Series{kind, "database"}] = value
	}
	rows, _ := db.Query(ctx, relationsSQL)
	relations, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	for _, r := range relations {
		if keptForEver[r.Name] {
			s.Values[Series{bytesPerName, r.Name}] = r.Bytes / max(1, used)
		} else {
			s.Values[Series{relationBytes, r.Name}] = r.Bytes
		}
	}
	return err
}

// relation is a table or an index.
type relation struct {
	Name  string
	Bytes float64
}
