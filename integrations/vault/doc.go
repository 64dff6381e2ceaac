// Package vault stores the data of HashiCorp Vault in fencegate. [New] returns a storage backend with high availability
// whose writes are fenced ([physical.FencingHABackend]): what an active node writes after another one has taken over is
// rejected. It has atomic transactions ([physical.TransactionalBackend]).
//
// # How the data is kept
//
// All entries of a Vault are records of one resource. The right to write is the lease on the lock of the same name:
//
//   - The node that holds Vault's lock has that lease, and renews it. Vault names the lock by RegisterActiveNodeLock;
//     from then on the backend writes under its fencing token only. Once the lock is lost and granted to another node,
//     the writes are rejected; after Unlock they are refused with [ErrNotActive].
//   - Before, and without high availability, a write takes the lease for a few seconds, and renews it while there are
//     writes. So two nodes never write at the same time: an `operator init` beside an active node fails.
//
// There is one lease, so all locks of one backend exclude each other, whatever their keys. Vault has one.
//
// # Limits
//
//   - An entry has as many bytes as the gateway's --body-bytes-max allows, by default 1 MiB.
//   - A key has at most 512 bytes. What no record may be named, such as a segment "release", is stored escaped.
//   - List reads the keys of all entries below the prefix, 1,000 by a request.
//   - The writes of a node are sent one at a time.
package vault
