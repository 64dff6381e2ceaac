//go:build unix

package main

type benchCmds struct {
	Writes benchWritesCmd `cmd:"" default:"withargs" help:"Measure fenced writes beside unfenced ones. It is what bench alone does."`
	Locks  benchLocksCmd  `cmd:"" help:"Measure locks beside etcd's and Redis's."`
	Floor  benchFloorCmd  `cmd:"" hidden:"" help:"Serve an empty handler."`
}
