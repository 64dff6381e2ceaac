// Package migrations holds everything that fencegate keeps in PostgreSQL besides data, and applies it.
//
// There are two kinds of SQL. Numbered files (001_schema.sql, …) make tables and types. They run once, in order, and
// are never edited after a release. Each file under guard/ has the functions of a subject, "create or replace", the one
// that others call first. They are applied again, all in one transaction, whenever [GuardRevision] has risen. The folders
// of guard/ are
//
//	rule     the decision about a write token, and what it needs: fences, tokens, policies
//	write    applying writes
//	lease    granting, renewing and ending leases
//	queue    waiters, their order, and deadlocks
//	session  sessions and the end of their leases
//	client   what applications call by SQL: guards and leases
//	table    the protection of users' tables
//	access   keys of callers, names of SQL roles, and the record of administrators' actions
//	view     views, which are replaced like functions
//	observe  watches, rejections, samples, the inventory and the turns of the sweep
//
// Everything is in the schema "fence". schema.golden shows the result of both. It is embedded, too: Differences
// compares a database with it.
package migrations

import "embed"

const (
	// GuardRevision numbers the functions under guard/. A release that changes them, or adds a numbered file, raises it by
	// one: a program replaces older functions by its own. A test fails until it is raised.
	GuardRevision = 1

	// servesFrom is the revision of the oldest program that can call these functions, and use these tables. So it can stay
	// while others are replaced, and be started again. A release may raise it to the revision of the one before, not
	// further. A function that such a program calls keeps its arguments and the columns of its result.
	servesFrom = 1

	// worksFrom is the oldest revision of functions that this program can call. So it can be started before the schema is
	// migrated. A statement that needs newer ones fails with ErrNotMigrated until then. No acquire, renewal, release, write,
	// read or session needs newer ones.
	worksFrom = 1
)

//go:embed *.sql
var numbered embed.FS

//go:embed guard/*/*.sql
var guard embed.FS
