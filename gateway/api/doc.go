// Package api is the wire format of fencegate's HTTP API: the bodies of requests and answers, server-sent events, the
// error codes and the Fencing-Token header. The gateway and the Go SDK share it. It imports the standard library only.
//
// Times are RFC 3339 UTC with milliseconds, durations integers ending in _ms, tokens JSON integers below 2^53.
package api
