package drive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// SQL is a client that uses the SQL functions: for leases on one connection, for transactions on another. What there is
// no function for, its Service does. A transaction that it guards appends a row to the journal of its resource.
type SQL struct {
	spec.Service
	leases, writes *pgx.Conn
	schema         string                     // of the functions
	at             func(store.Name) *pgx.Conn // the database that has a name
	// Committing is when the last transaction was about to commit.
	Committing time.Time

	begun pgx.Tx
}

// segmentsMax is the most segments of a name that has a journal: the protected table of all names with as many.
const segmentsMax = 4

// NewSQL makes the journals, unless they are there, and returns a client.
func NewSQL(t *testing.T, url string, beside spec.Service) *SQL {
	t.Helper()
	c := newSQL(t, url, beside, "fence")
	c.at = func(store.Name) *pgx.Conn { return c.leases }
	for _, journal := range Journals() {
		_, err := c.leases.Exec(t.Context(), fmt.Sprintf("do $$ begin if to_regclass('%s') is null then %s; perform %s; end if; end $$",
			journal.Name, journal.Create, journal.Protect))
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// NewSQLOfCluster returns a client of a node of Citus, where the journals are. at returns a connection to the node that
// has a name.
func NewSQLOfCluster(t *testing.T, url string, beside spec.Service, at func(store.Name) *pgx.Conn) *SQL {
	t.Helper()
	c := newSQL(t, url, beside, "fencegate")
	c.at = at
	return c
}

func newSQL(t *testing.T, url string, beside spec.Service, schema string) *SQL {
	t.Helper()
	var conns [2]*pgx.Conn
	for i := range conns {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		conns[i] = conn
	}
	return &SQL{Service: beside, leases: conns[0], writes: conns[1], schema: schema}
}

// Journal is a table for rows of resources of as many segments, the first of which is its first column.
type Journal struct {
	Name    string
	Create  string // a statement
	Protect string // a call
}

// Journals are all of them.
func Journals() (journals []Journal) {
	for count := 1; count <= segmentsMax; count++ {
		columns, name := journalColumns(count), fmt.Sprint("journal_", count)
		journals = append(journals, Journal{
			Name: name,
			Create: fmt.Sprintf("create table %s (%s text, position bigint, token bigint, sequence bigint, primary key (%s, position))",
				name, strings.Join(columns, " text, "), strings.Join(columns, ", ")),
			Protect: fmt.Sprintf("fence.protect('%s', '{%s}')", name, strings.Join(columns, "}/{")),
		})
	}
	return journals
}

// Calls draws what clients like this send, one after the other.
func (c *SQL) Calls() spec.Generator {
	return spec.Generator{
		Names: []store.Name{"a", "b", "b/c", "b/c/d"}, Owners: []string{"A", "B"},
		Principals: []string{"sql:" + c.leases.Config().User},
		Weights:    append([]spec.Weight{{Kind: spec.Guard, Share: 30}}, spec.Sequential...),
		TTL:        time.Hour, TTLSpread: time.Second,
	}
}

func journalColumns(count int) []string { return []string{"a", "b", "c", "d"}[:count] }

// Acquire is by fence.acquire, but in a session by the Service.
func (c *SQL) Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	if request.SessionID != uuid.Nil {
		return c.Service.Acquire(ctx, request)
	}
	var token int64
	var id *uuid.UUID
	var expiresAt *time.Time
	var status, reason, holder string
	request.Mode, request.Scope = cmp.Or(request.Mode, store.Exclusive), cmp.Or(request.Scope, store.Node)
	ttl := cmp.Or(request.TTL, store.TTLDefault).Milliseconds()
	err := c.leases.QueryRow(ctx, `
		select status, coalesce(reason, ''), lease_id, coalesce(fencing_token, 0), expires_at, coalesce(holder, '')
		from `+c.schema+`.acquire($1, $2, $3::bigint::integer, $4, $5, nullif($6, ''), nullif($7, '')::json)`,
		request.Lock, request.OwnerID, ttl, request.Mode, request.Scope, request.RequestID, string(request.Metadata)).Scan(
		&status, &reason, &id, &token, &expiresAt, &holder)
	switch {
	case err != nil:
		return store.Lease{}, errorOfSQL(err)
	case status == "held" && expiresAt == nil:
		return store.Lease{}, &store.HeldError{Lock: request.Lock}
	case status == "held":
		return store.Lease{}, &store.HeldError{Lock: request.Lock, OwnerID: holder, Principal: request.Principal, ExpiresAt: *expiresAt}
	case status == "lost":
		return store.Lease{}, &store.LostError{Lock: request.Lock, Reason: reason}
	case id == nil || expiresAt == nil:
		return store.Lease{}, fmt.Errorf("%s without a lease", status)
	}
	return c.lease(ctx, store.LeaseRef{Lock: request.Lock, OwnerID: request.OwnerID, ID: *id, Token: token}, *expiresAt)
}

// Renew is by fence.renew.
func (c *SQL) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	var reason string
	var expiresAt *time.Time
	err := c.leases.QueryRow(ctx, "select coalesce(reason, ''), expires_at from "+c.schema+".renew($1, $2, $3, $4, nullif($5, 0)::integer)",
		ref.Lock, ref.OwnerID, ref.ID, ref.Token, ttl.Milliseconds()).Scan(&reason, &expiresAt)
	if lost := lostOfSQL(err, ref.Lock, reason); lost != nil {
		return store.Lease{}, lost
	}
	if expiresAt == nil {
		return store.Lease{}, errors.New("renewed without a lease")
	}
	return c.lease(ctx, ref, *expiresAt)
}

// Release is by fence.release.
func (c *SQL) Release(ctx context.Context, ref store.LeaseRef) error {
	var reason string
	err := c.leases.QueryRow(ctx, "select coalesce(reason, '') from "+c.schema+".release($1, $2, $3, $4)",
		ref.Lock, ref.OwnerID, ref.ID, ref.Token).Scan(&reason)
	return lostOfSQL(err, ref.Lock, reason)
}

// lease adds to what a function has returned what it does not.
func (c *SQL) lease(ctx context.Context, ref store.LeaseRef, expiresAt time.Time) (store.Lease, error) {
	lease := store.Lease{Lock: ref.Lock, OwnerID: ref.OwnerID, ID: ref.ID, Token: ref.Token, ExpiresAt: expiresAt}
	var ttl int64
	err := c.at(ref.Lock).QueryRow(ctx, `select principal, mode, scope, ttl_ms, granted_at, metadata::text from fence.leases
		where lock = $1 and fencing_token = $2`, ref.Lock, ref.Token).Scan(
		&lease.Principal, &lease.Mode, &lease.Scope, &ttl, &lease.GrantedAt, &lease.Metadata)
	lease.TTL = time.Duration(ttl) * time.Millisecond
	return lease, errorOfSQL(err)
}

func lostOfSQL(err error, lock store.Name, reason string) error {
	switch {
	case err != nil:
		return errorOfSQL(err)
	case reason == spec.CodeNotFound:
		return store.ErrNotFound
	case reason != "":
		return &store.LostError{Lock: lock, Reason: reason}
	}
	return nil
}

func errorOfSQL(err error) error {
	switch sqlState(err) {
	case "22023":
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	case "LF003":
		return store.ErrExternalAuthority
	case "40P01": // with a transaction that wrote before it was admitted
		return &store.UnavailableError{Outcome: store.OutcomeNotApplied}
	}
	return err
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// Performs reports whether clients by other means can't do it.
func (c *SQL) Performs(kind spec.Kind) bool {
	return kind == spec.Begin || kind == spec.Guard || kind == spec.Expire
}

// Perform performs such an operation.
func (c *SQL) Perform(ctx context.Context, op spec.Op) (spec.Answer, spec.Choice) {
	var err error
	switch op.Kind {
	case spec.Expire:
		_, err = c.at(op.Name).Exec(ctx, endings[spec.Expire], op.Name, op.Token)
	case spec.Begin:
		err = c.begin(ctx, op.Level)
		if err == nil {
			_, err = c.begun.Exec(ctx, "select from journal_1 limit 1") // the snapshot
		}
	case spec.Guard:
		if !op.Late || c.begun == nil {
			err = c.begin(ctx, op.Level)
		}
		if err == nil {
			return c.guard(ctx, op), spec.Choice{}
		}
	}
	if err != nil {
		return spec.Answer{Code: err.Error()}, spec.Choice{}
	}
	return spec.Answer{Code: spec.CodeDone}, spec.Choice{}
}

func (c *SQL) begin(ctx context.Context, level string) (err error) {
	c.end(ctx)
	c.begun, err = c.writes.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
	return err
}

// end rolls back the transaction that was begun.
func (c *SQL) end(ctx context.Context) {
	if c.begun != nil {
		_ = c.begun.Rollback(ctx)
		c.begun = nil
	}
}

// guard admits the transaction that was begun, writes a row, and commits.
func (c *SQL) guard(ctx context.Context, op spec.Op) spec.Answer {
	defer c.end(ctx)
	answer, err := c.admit(ctx, op)
	if err != nil || answer != (spec.Answer{}) {
		return answerOfGuard(answer, err)
	}
	segments := strings.Split(string(cmp.Or(op.Key, op.Name)), "/")
	var values, equal []string
	for i, column := range journalColumns(len(segments)) {
		values = append(values, "'"+segments[i]+"'")
		equal = append(equal, column+" = "+values[i])
	}
	var last int64 // apart, or Citus would pass on no SQLSTATE
	err = c.begun.QueryRow(ctx, fmt.Sprintf("select coalesce(max(position), 0) from journal_%d where %s", len(segments),
		strings.Join(equal, " and "))).Scan(&last)
	if err == nil {
		_, err = c.begun.Exec(ctx, fmt.Sprintf("insert into journal_%d values (%s, $1, $2, $3)", len(segments),
			strings.Join(values, ", ")), last+1, op.Token, op.Sequence)
	}
	if err == nil {
		c.Committing = time.Now()
		err = c.begun.Commit(ctx)
	}
	return answerOfGuard(spec.Answer{Code: spec.CodeAdmitted}, err)
}

// admit returns no answer if the transaction goes on.
func (c *SQL) admit(ctx context.Context, op spec.Op) (answer spec.Answer, err error) {
	var token, id any
	if op.Token != 0 {
		token = op.Token
	}
	if op.LeaseID != uuid.Nil {
		id = op.LeaseID
	}
	arguments := []any{op.Name, token, op.Sequence, id, op.Value}
	call := c.schema + ".%sguard($1, $2::bigint, $3::bigint, $4::uuid, convert_to(nullif($5, ''), 'UTF8'))"
	guarded := func() error {
		admitted := false
		err := c.begun.QueryRow(ctx, "select "+fmt.Sprintf(call, ""), arguments...).Scan(&admitted)
		if err == nil && !admitted {
			answer = spec.Answer{Code: spec.CodeAdmitted, Replayed: true}
		}
		return err
	}
	switch op.Way {
	case spec.ByTryGuard:
		err = c.begun.QueryRow(ctx, "select * from "+fmt.Sprintf(call, "try_"), arguments...).Scan(
			&answer.Code, &answer.Reason, &answer.GrantedToken, &answer.LastToken, &answer.LastSequence)
		switch answer.Code {
		case spec.CodeAdmitted:
			answer = spec.Answer{}
		case "replayed":
			answer = spec.Answer{Code: spec.CodeAdmitted, Replayed: true}
		}
		return answer, err
	case spec.BySetting:
		_, err = c.begun.Exec(ctx, "select fence.set_token($1, $2, null, $3)", token, op.Sequence, id)
		return answer, err
	case spec.InSavepoint, spec.Undone:
		savepoint, err := c.begun.Begin(ctx)
		if err != nil {
			return answer, err
		}
		err = guarded()
		if op.Way == spec.Undone {
			return spec.Answer{}, savepoint.Rollback(ctx)
		}
		if err == nil {
			err = savepoint.Commit(ctx)
		}
		return answer, err
	case spec.Unadmitted:
		return answer, nil
	}
	return answer, guarded()
}

// answerOfGuard is the answer to a transaction, by its error if it has one.
func answerOfGuard(answer spec.Answer, err error) spec.Answer {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
	case !ok:
		answer = spec.Answer{Code: err.Error()}
	case pgErr.Code == "40001", strings.HasPrefix(pgErr.Message, "could not commit transaction for shard"): // of Citus, at commit
		answer = spec.Answer{Code: spec.CodeSnapshot}
	case !strings.HasPrefix(pgErr.Code, "LF1"):
		answer = spec.Answer{Code: pgErr.Error()}
	default:
		var detail struct {
			Code         string `json:"code"`
			Reason       string `json:"reason"`
			GrantedToken int64  `json:"granted_token"`
			LastToken    int64  `json:"last_token"`
			LastSequence int64  `json:"last_sequence"`
		}
		if err := json.Unmarshal([]byte(pgErr.Detail), &detail); err != nil {
			return spec.Answer{Code: err.Error()}
		}
		answer = spec.Answer{Code: detail.Code, Reason: detail.Reason, GrantedToken: detail.GrantedToken,
			LastToken: detail.LastToken, LastSequence: detail.LastSequence}
	}
	return answer.Told()
}

// CheckOrder checks the calls of SQL clients on some names, that were used by nobody else: as a history, and by the rows of
// the journals, which rise (P3), and are those of the committed transactions (P4).
func (c *SQL) CheckOrder(ctx context.Context, names []store.Name, calls []spec.Call) error {
	var failed error
	wrong := func(format string, arguments ...any) { failed = errors.Join(failed, fmt.Errorf(format, arguments...)) }
	written := map[store.Name]int{}
	var history []spec.Call
	for _, call := range calls {
		code := call.Answer.Code
		if strings.Contains(code, "SQLSTATE") && !strings.Contains(code, "23505") &&
			!strings.Contains(code, "40P01") { // these two meet a transaction that wrote before it was admitted
			wrong("an unexpected error: %s", call)
		}
		if call.Op.Kind == spec.Guard && code == spec.CodeAdmitted && !call.Answer.Replayed {
			written[cmp.Or(call.Op.Key, call.Op.Name)]++
		}
		history = append(history, admissions(call)...)
	}
	for _, violation := range spec.Check(history) {
		wrong("%s", violation)
	}
	for _, name := range names {
		rows, err := c.journal(ctx, name)
		if failed = errors.Join(failed, err); len(rows) != written[name] {
			wrong("P4: %s has %d rows, and %d transactions were committed", name, len(rows), written[name])
		}
		for i := range rows[min(1, len(rows)):] {
			if slices.Compare(rows[i][:], rows[i+1][:]) >= 0 {
				wrong("P3: %s: %v follows %v", name, rows[i+1], rows[i])
			}
		}
	}
	return failed
}

// admissions are the calls of a history that a client's call is: a transaction that writes to a name below the guarded one
// is admitted there, too; if it was refused, the fence in the answer may be of either.
func admissions(call spec.Call) []spec.Call {
	op := &call.Op
	if op.Kind != spec.Guard {
		return []spec.Call{call}
	}
	if op.Way == spec.Undone || op.Way == spec.Unadmitted {
		op.Token = 0
	}
	if op.Key == "" {
		return []spec.Call{call}
	}
	call.Answer.GrantedToken, call.Answer.LastToken, call.Answer.LastSequence = 0, 0, 0
	below := call
	below.Op.Name, below.Op.Key, op.Key = op.Key, "", ""
	return []spec.Call{call, below}
}

// journal returns the tokens and sequences of the rows of a resource, in their order.
func (c *SQL) journal(ctx context.Context, resource store.Name) ([][2]int64, error) {
	count := strings.Count(string(resource), "/") + 1
	rows, err := c.leases.Query(ctx, fmt.Sprintf("select token, coalesce(sequence, 0) from journal_%d where %s = $1 order by position",
		count, strings.Join(journalColumns(count), " || '/' || ")), resource)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (number [2]int64, err error) {
		return number, row.Scan(&number[0], &number[1])
	})
}
