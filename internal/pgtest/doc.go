// Package pgtest gives tests a real PostgreSQL.
//
// Most tests want a database of their own on a server that the whole test process shares:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
//	func TestX(t *testing.T) {
//		url := pgtest.Migrated(t) // or pgtest.Empty(t)
//
// The shared server is the one that FENCEGATE_DATABASE_URL names, where databases are made and dropped, and nothing else
// is touched. If that is not set, it runs from PostgreSQL binaries on this machine, on a copy of a cluster that is kept
// in the user's cache. Without either the test is skipped, or fails where CI=true: a check that never ran must not look
// green. (`make test` sets the variable if there are no binaries, but there is Docker.)
//
// Tests that break PostgreSQL want a cluster of their own, see [NewCluster]: kill it, start it again, make a standby,
// promote that, lose commits on the way. Clusters are durable; the shared server is not (fsync is off), which no client
// can tell unless it crashes.
//
// Nothing is left behind: what a killed test process leaves is removed by the next one.
package pgtest
