package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNoRole means that a role that was to be given rights does not exist.
var ErrNoRole = errors.New("there is no such role")

// Roles are the names of roles that do not own the schema. Each must exist.
type Roles struct {
	Gateway    []string // may do what gateways need: call functions and read, and change nothing by itself
	App        []string // may guard transactions, lease locks, and see which tables are protected
	AppNames   []string // prefixes of the names that those of App may use, besides those that they may; none: all names
	TableOwner []string // may also protect the tables that it owns
}

// appRights are all rights of a role of an application. The functions that others in the list call with the caller's
// rights are among them.
var appRights = []string{
	"usage on schema fence",
	"execute on function fence.guard",
	"execute on function fence.try_guard",
	"execute on function fence.outcome",
	"execute on function fence.set_token",
	"execute on function fence.segment",
	"execute on function fence.escape_segment", // for fence.segment
	"execute on function fence.acquire",
	"execute on function fence.renew",
	"execute on function fence.release",
	"execute on function fence.claim",
	"execute on function fence.claim_query", // for fence.claim
	"execute on function fence.is_held",
	"execute on function fence.claim_leases",
	"execute on function fence.renew_claim",
	"select on fence.held",
	"select on fence.protected",
	"execute on function fence.protection_problem, fence.may_use, fence.is_allowed", // for fence.protected
}

// gatewayRights are all rights of a role of gateways.
var gatewayRights = []string{
	"usage on schema fence",
	"select on all tables in schema fence",
	"select on all sequences in schema fence", // to see the last values
	"execute on function fence." + strings.Join(gatewayFunctions, ", fence."),
}

// gatewayFunctions are those that gateways call, and those that others in the list call with the caller's rights.
var gatewayFunctions = []string{
	// access
	"all_names", "check_actor", "create_key", "is_allowed", "live_keys", "may_use", "names_of", "note_key_uses", "note_refusals",
	"revoke_key", "rotate_key",
	// client
	"escape_segment", "is_name", "segment",
	// cluster
	"begin_move", "end_move", "end_transfer", "export_trees", "finish_export", "finish_import", "import_rows", "is_elsewhere",
	"merge_rejections", "take_range", "take_rejections",
	// lease
	"acquire_lease", "acquire_leases", "break", "conflicting_leases", "give_back",
	"grant_elsewhere", "lease_provider", "lease_request", "live_leases", "owner_is_allowed", "due_elsewhere",
	"status_elsewhere", "release_lease", "release_leases", "renew_leases", "note_ends_elsewhere",
	// observe
	"audit_text", "begin_watch", "forget_gateway", "keep_sample", "postpone_recount", "probe", "record_rejections",
	"recount", "sweep",
	// queue
	"blockers", "break_deadlock", "find_deadlocks", "grant_next", "heartbeat",
	"leases_and_waits", "leave", "live_waiters", "next_due", "waiters_ahead", "waiters_behind",
	// rule
	"accept_database", "ancestors", "delete_policy", "granted_above", "has_subtrees", "is_below", "lineage", "note_jump",
	"policy_for", "put_policy", "running_database", "running_timeline", "sequences_behind", "set_fence", "supersede",
	// session
	"create_session", "end_session", "keep_alive", "session_is_live", "settle_leases",
	"settle_waiters",
	// table
	"check_tables", "protection_problem", "template_columns", "template_segments", "with_partitions",
	// write
	"admit_only", "commit_durably", "confirm_read", "open_table_named", "resource_condition", "row_statement",
	"segment_value", "transact", "transact_tables", "typed_columns", "write", "write_one", "write_rows",
}

// tableOwnerRights are the rights that a role needs besides to protect its tables.
var tableOwnerRights = []string{
	"insert (table_id) on fence.table_callers", // not the other columns: they are the proof of who calls
	"execute on function fence.protect",
	"execute on function fence.prepare_protection", // for fence.protect
	"execute on function fence.make_triggers",
	"execute on function fence.unprotect",
	"execute on function fence.forget_protection", // for fence.unprotect
}

// Grant gives the roles their rights, all or none. The schema must be this program's. It returns ErrNoRole, or the
// database's error. Migrations keep the rights, but a function that a later version adds must be granted then.
func Grant(ctx context.Context, conn *pgx.Conn, roles Roles) error {
	return exclusively(ctx, conn, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, to := range roles.rights() {
				if err := grant(ctx, tx, to.sql, to.role); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// roleRights are the statements that give a role its rights.
type roleRights struct {
	role string
	sql  []string
}

func (r Roles) rights() (all []roleRights) {
	for _, role := range r.Gateway {
		all = append(all, roleRights{role, grantsSQL(gatewayRights, role)})
	}
	for _, role := range r.App {
		all = append(all, roleRights{role, append(grantsSQL(appRights, role), namesSQL(role, r.AppNames)...)})
	}
	for _, role := range r.TableOwner {
		all = append(all, roleRights{role, append(grantsSQL(slices.Concat(appRights, tableOwnerRights), role),
			namesSQL(role, nil)...)})
	}
	return all
}

func grant(ctx context.Context, tx pgx.Tx, statements []string, role string) error {
	var exists bool
	err := tx.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", role).Scan(&exists)
	switch {
	case err != nil:
		return fmt.Errorf("look for the role %q: %w", role, err)
	case !exists:
		return fmt.Errorf("%w: %q; make it first: create role %s login", ErrNoRole, role, pgx.Identifier{role}.Sanitize())
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func grantsSQL(rights []string, role string) (statements []string) {
	for _, right := range rights {
		statements = append(statements, "grant "+right+" to "+pgx.Identifier{role}.Sanitize())
	}
	return statements
}

// namesSQL lets the role use the names; without any, those that it has, or all.
func namesSQL(role string, names []string) (statements []string) {
	quoted := quoteLiteral(pgx.Identifier{role}.Sanitize())
	for _, name := range names {
		statements = append(statements, fmt.Sprintf("select fence.allow_names(%s, %s)", quoted, quoteLiteral(name)))
	}
	if len(names) == 0 {
		statements = append(statements, fmt.Sprintf("select fence.allow_names(%s)", quoted))
	}
	return statements
}

func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
