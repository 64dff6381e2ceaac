package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ErrNoRole means that a role that was to be given rights does not exist.
var ErrNoRole = errors.New("there is no such role")

// Roles are the names of roles of applications. Each must exist.
type Roles struct {
	App        []string // may guard transactions, lease locks, and see which tables are protected
	TableOwner []string // may also protect the tables that it owns
}

// appRights are all rights of a role of an application. The functions that others in the list call with the caller's
// rights are among them.
var appRights = []string{
	"usage on schema fence",
	"execute on function fence.guard",
	"execute on function fence.try_guard",
	"execute on function fence.segment",
	"execute on function fence.escape_segment", // for fence.segment
	"execute on function fence.acquire",
	"execute on function fence.renew",
	"execute on function fence.release",
	"select on fence.protected",
	"execute on function fence.protection_problem", // for fence.protected
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
			for _, role := range slices.Concat(roles.App, roles.TableOwner) {
				if err := grant(ctx, tx, appRights, role); err != nil {
					return err
				}
			}
			for _, role := range roles.TableOwner {
				if err := grant(ctx, tx, tableOwnerRights, role); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func grant(ctx context.Context, tx pgx.Tx, rights []string, role string) error {
	var exists bool
	err := tx.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", role).Scan(&exists)
	switch {
	case err != nil:
		return fmt.Errorf("look for the role %q: %w", role, err)
	case !exists:
		return fmt.Errorf("%w: %q; make it first: create role %s login", ErrNoRole, role, pgx.Identifier{role}.Sanitize())
	}
	for _, right := range rights {
		if _, err := tx.Exec(ctx, "grant "+right+" to "+pgx.Identifier{role}.Sanitize()); err != nil {
			return fmt.Errorf("grant %s to %q: %w", right, role, err)
		}
	}
	return nil
}
