// Package checks looks in a database, and at Patroni, for what weakens fencing, or loses writes on a failover.
//
// A Check is a query and the advice for what it finds. To add one, add it to a list of list.go or operation.go.
package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// State says what a check found, for a line of a checklist.
type State string

// The states, the worst first.
const (
	Wrong      State = "wrong"   // an Error
	Suspicious State = "warning" // a Warning
	Unknown    State = "unknown" // it could not be found out
	OK         State = "ok"      // nothing, or only a Notice
)

// Check is a query for one kind of weakness.
type Check struct {
	Name     string
	Severity Severity
	// SQL returns two texts for each finding, what it is about and what was found, and perhaps a third: its cure. It may
	// only read, and begins with an empty search_path. Where it is about roles, $1 is an array of those to look at; null: all.
	SQL string
	// Unseen is an expression of SQL, or "": the reason why SQL can't find it out, or null. See is what then helps.
	Unseen, See string
	// VersionMin is the first version of PostgreSQL (server_version_num) that can run SQL; 0: all.
	VersionMin int
	// Advice says why a finding matters, and what to do about it; Cure is the command for that, where SQL returns none. It
	// works as it is, but for words in capitals. SQL ends with ";", or with a comment that begins with "--".
	Advice, Cure string
	// Sound says what is so where nothing was found.
	Sound string
}

// All is all checks of a database that read its catalog, the worst findings first.
var All = worstFirst(slices.Concat(ofTables, OfRoles, ofNames, ofFailovers, ofOperation))

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

// Finding is what a check found, or that it found nothing.
type Finding struct {
	State    State    `json:"state"`
	Severity Severity `json:"severity,omitempty"` // "" where the check found nothing, or could not look
	Check    string   `json:"check"`
	Subject  string   `json:"subject,omitempty"`
	Detail   string   `json:"detail"`
	Advice   string   `json:"advice,omitempty"`
	Cure     string   `json:"cure,omitempty"`
}

// finding returns one about a subject; without one, that the check found nothing.
func (c Check) finding(subject, detail string) Finding {
	if subject == "" {
		return Finding{State: OK, Check: c.Name, Detail: cmp.Or(detail, c.Sound, "nothing found")}
	}
	states := map[Severity]State{Error: Wrong, Warning: Suspicious, Notice: OK}
	return Finding{states[c.Severity], c.Severity, c.Name, subject, detail, c.Advice, c.Cure}
}

// unknown returns that the check could not look.
func (c Check) unknown(reason, see string) Finding {
	return Finding{State: Unknown, Check: c.Name, Detail: reason, Cure: see}
}

// WorstFirst sorts findings by their states, and keeps the order of those of one state.
func WorstFirst(findings []Finding) []Finding {
	states := []State{Wrong, Suspicious, Unknown, OK}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return slices.Index(states, a.State) - slices.Index(states, b.State)
	})
	return findings
}

// Run returns what the checks find, in their order, or that one found nothing; those of roles look at the named ones, or
// without any at all that matter. What the role of the connection may not read is unknown. It returns other errors of
// the database. No statement outlasts the deadline of ctx.
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
			if failed, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains(unreadable, failed.Code) {
				found, err = []Finding{c.unknown(failed.Message, "")}, nil
			}
			if err != nil {
				return fmt.Errorf("check %s: %w", c.Name, err)
			}
			findings = append(findings, found...)
		}
		return nil
	})
	return findings, err
}

// unreadable are the SQLSTATEs of what the role may not read, and of what a schema of another version lacks.
var unreadable = []string{"42501", "42P01", "42703", "42883"}

func (c Check) run(ctx context.Context, tx pgx.Tx, roles []string) (found []Finding, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if c.Unseen != "" {
			var reason *string
			if err := tx.QueryRow(ctx, "select "+c.Unseen).Scan(&reason); err != nil {
				return err
			}
			if reason != nil {
				found = []Finding{c.unknown(*reason, c.See)}
				return nil
			}
		}
		var args []any
		if strings.Contains(c.SQL, "$1") {
			args = []any{roles}
		}
		rows, err := tx.Query(ctx, c.SQL, args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Finding, error) {
			var subject, detail string
			cure := &c.Cure
			err := row.Scan([]any{&subject, &detail, &cure}[:len(row.FieldDescriptions())]...)
			f := c.finding(subject, detail)
			if cure != nil {
				f.Cure = *cure
			}
			return f, err
		})
		return err
	})
	if err == nil && len(found) == 0 {
		found = []Finding{c.finding("", "")}
	}
	return found, err
}
