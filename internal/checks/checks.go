// Package checks looks in a database, and at Patroni, for what weakens fencing, or loses writes on a failover.
//
// A Check is a query and the advice for what it finds. To add one, add it to a list of list.go.
package checks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Severity says how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	// Error: the fence does not check what it should, or a crash loses what was acknowledged.
	Error Severity = "error"
	// Warning: someone could get past the fence on purpose, or a failover can lose writes or take long.
	Warning Severity = "warning"
	// Notice: it may be as wanted, and is good to know.
	Notice Severity = "notice"
)

// Check is a query for one kind of weakness.
type Check struct {
	Name     string
	Severity Severity
	// SQL returns two texts for each finding: what it is about, and what was found. It may only read, and begins with an
	// empty search_path. Where it is about roles, $1 is an array of those to look at; null: all.
	SQL string
	// VersionMin is the first version of PostgreSQL (server_version_num) that can run SQL; 0: all.
	VersionMin int
	// Advice says what to do about a finding.
	Advice string
}

// All is all checks of a database that read its catalog, the worst findings first.
var All = worstFirst(slices.Concat(ofTables, OfRoles, ofNames, ofFailovers))

// Of returns All, or with rows All and OfRows, the worst findings first.
func Of(rows bool) []Check {
	if rows {
		return worstFirst(slices.Concat(All, OfRows))
	}
	return All
}

func worstFirst(all []Check) []Check {
	severities := []Severity{Error, Warning, Notice}
	slices.SortStableFunc(all, func(a, b Check) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	return all
}

// Finding is something that a check found.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	Subject  string   `json:"subject"`
	Detail   string   `json:"detail"`
	Advice   string   `json:"advice"`
}

// Run returns what the checks find, in their order; those of roles look at the named ones, or without any at all that
// matter. It returns the error of the database, such as for a role that may not read the schema "fence". No statement
// outlasts the deadline of ctx.
func Run(ctx context.Context, conn *pgx.Conn, all []Check, roles ...string) ([]Finding, error) {
	findings := []Finding{}
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var version int
		var timeout int64
		if deadline, ok := ctx.Deadline(); ok {
			timeout = max(1, time.Until(deadline).Milliseconds())
		}
		err := tx.QueryRow(ctx, `select current_setting('server_version_num')::integer
			from set_config('search_path', '', true) as path, set_config('statement_timeout', $1::bigint::text, true) as timeout`,
			timeout).Scan(&version)
		if err != nil {
			return err
		}
		for _, c := range all {
			if version < c.VersionMin {
				continue
			}
			found, err := c.run(ctx, tx, roles)
			if err != nil {
				return fmt.Errorf("check %s: %w", c.Name, err)
			}
			findings = append(findings, found...)
		}
		return nil
	})
	return findings, err
}

func (c Check) run(ctx context.Context, tx pgx.Tx, roles []string) ([]Finding, error) {
	var args []any
	if strings.Contains(c.SQL, "$1") {
		args = []any{roles}
	}
	rows, err := tx.Query(ctx, c.SQL, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Finding, error) {
		finding := Finding{Severity: c.Severity, Check: c.Name, Advice: c.Advice}
		err := row.Scan(&finding.Subject, &finding.Detail)
		return finding, err
	})
}

// URL returns what is to be found in the connection URL of a database. It returns an error if that can't be parsed.
func URL(databaseURL string) ([]Finding, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	type address struct {
		host string
		port uint16
	}
	hosts := map[address]bool{{config.Host, config.Port}: true}
	for _, other := range config.Fallbacks { // also the same host without TLS
		hosts[address{other.Host, other.Port}] = true
	}
	if len(hosts) == 1 || config.ValidateConnect != nil {
		return nil, nil
	}
	return []Finding{{
		Severity: Warning, Check: "target_session_attrs", Subject: "--database-url",
		Detail: "names several hosts, and not target_session_attrs",
		Advice: "A gateway uses the first host that answers, also if it is a standby, and is not ready then. Add " +
			"target_session_attrs=read-write to the URL.",
	}}, nil
}
