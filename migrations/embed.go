// Package migrations holds everything that fencegate keeps in PostgreSQL besides data, and applies it.
//
// Two kinds of SQL live here. Numbered files (001_schema.sql, …) make tables and types; they run once, in
// order, and are never edited after a release. The files under guard/ hold one function each, "create or
// replace", and are applied again, all of them in one transaction, whenever [GuardRevision] has risen.
// Everything is in the schema "fence". The state of the whole after both is kept in testdata/schema.golden.
package migrations

import "embed"

// GuardRevision numbers the functions under guard/. Whoever changes one raises it by one: a gateway puts
// its functions in place of older ones and refuses to start beside newer ones. A test fails until it is raised.
const GuardRevision = 1

//go:embed *.sql
var numbered embed.FS

//go:embed guard/*/*.sql
var guard embed.FS
