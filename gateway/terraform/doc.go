// Package terraform keeps the states of Terraform and OpenTofu, as their backend "http" sends them, in records under
// leases.
//
// A state is the record "state" of the resource terraform/NAME, and its lock is the lock of that name. The client makes
// the ID of a lock, a UUID; here it is the request_id of the lease. So a LOCK that is sent again finds its own lease, and
// the ID that a write carries leads to the fencing token under which the write is judged, also when its lease has ended.
// This package judges nothing itself.
//
// The sequence of a write is the state's serial, which Terraform raises with each write of a lock. So a request that
// arrives twice is applied once, and one that was delayed behind a newer one is rejected.
//
// The write that stores a state also stores it as a version, in the same transaction: under the keys history/0000,
// history/0001 and so on, of which the one with the oldest version is used again.
package terraform
