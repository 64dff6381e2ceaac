// Package bench holds what the benchmarks share: what several rounds come to, and where they ran. The benchmarks are in
//
//	writes   fenced writes beside unfenced ones
//	tables   the same for tables of a user's own
//	locks    the lock service beside other lock services
//	peers    those others, run as processes of their own
//
// Targets are measured in turn, round by round, so that what drifts on the machine drifts for all of them. The figures
// to quote are the ratios of a round.
package bench
