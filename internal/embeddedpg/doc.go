// Package embeddedpg runs a private PostgreSQL cluster for one gateway, from binaries found on the machine.
//
// It is what `fencegate serve` uses when it is given no database URL. The cluster is durable: fsync,
// synchronous_commit and full_page_writes are on, so a grant or a write that was acknowledged survives the death
// of the gateway, of PostgreSQL and of the machine. It listens on a Unix socket in a directory that only its own
// user (and root) may enter, and on no network address. Every client that can reach the socket is trusted.
//
// # The data directory
//
//	lock            locked by the gateway for its life: one owner per data directory
//	postgres.lock   locked by PostgreSQL itself: every one of its processes inherits the lock,
//	                so it is free exactly when the last of them has ended, however it ended
//	cluster/        the cluster; it appears by a rename, so it is complete or absent
//	cluster.new-*/  a cluster that initdb did not finish; removed at the next start
//	run/            the socket; a symbolic link to a private directory where the path would be too long for a socket
//	postgres.log    what PostgreSQL logs; moved to postgres.log.1 at a start once it is large
//
// # Life and death
//
// PostgreSQL lives in a session of its own, so that a terminal's Ctrl-C reaches the gateway alone, which drains
// first and stops PostgreSQL last. (Under systemd use KillMode=mixed for the same reason.)
//
//	the gateway stops        Stop: fast shutdown, a checkpoint, a clean end
//	the gateway is killed    a watchdog process sees its pipe close and shuts PostgreSQL down at once;
//	                         the next start waits for the end of that and recovers from the log
//	PostgreSQL is killed     Done is closed and Err says why; the gateway should end, or Start again
//	both are killed          a PostgreSQL left behind is shut down by the next start, which then recovers
//	the gateway dies while   the new process waits for a go-ahead that it gets only after the watchdog
//	it starts PostgreSQL     knows it; without one it ends
//
// # The user
//
// PostgreSQL refuses to run as root. Under root it runs as the user postgres if there is one, else as nobody, and
// the cluster is given to that user; the data directory must then be in a place that the user can reach.
// Otherwise it runs as the user that the gateway runs as.
package embeddedpg
