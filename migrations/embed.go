// Package migrations holds everything that fencegate keeps in PostgreSQL besides data, and applies it.
//
// There are two kinds of SQL. Numbered files (001_schema.sql, …) make tables and types. They run once, in order, and
// are never edited after a release. The files under guard/ hold one function or view each, "create or replace". They
// are applied again, all in one transaction, whenever [GuardRevision] has risen. The folders of guard/ are
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
//	observe  events, rejections, samples, the inventory and the turns of the sweep
//
// Everything is in the schema "fence". testdata/schema.golden shows the result of both.
package migrations

import "embed"

// GuardRevision numbers the functions under guard/. A change after a release raises it by one: a gateway replaces older
// functions by its own, and refuses to start with newer ones. A test fails until it is raised.
const GuardRevision = 1

//go:embed *.sql
var numbered embed.FS

//go:embed guard/*/*.sql
var guard embed.FS
