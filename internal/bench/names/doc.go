// Package names measures a database that knows many names beside one that knows few: same server, same run, in turn.
// The figures to quote are the ratios of a round.
//
// Every name has a fence and a record of 100 bytes. A tenth of them had a lease, and of those a twentieth have one that
// runs. The rows are made by SQL, as acquires and writes would have left them, and vacuumed.
package names
