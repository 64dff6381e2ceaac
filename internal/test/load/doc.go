// Package load is the engine of "fencegate-bench load": clients that acquire, write, pause past their leases and come back,
// against running gateways. They record their calls, and spec.Check compares the answers with the contract while they
// work.
//
// Names are new in every run, and no other client may use them. A name retires after some uses: its records are read, its
// calls are checked and forgotten, and its clients use the next name. So memory does not grow with time, and all calls on
// a name are compared with each other.
package load
