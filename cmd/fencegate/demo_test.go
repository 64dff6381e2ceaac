package main

import (
	"testing"
)

func TestDemoBadInput(t *testing.T) {
	s := shell{t, ""}
	s.fails(exitUsage, "--gateway", "demo", "zombie", "--gateway", "nonsense")
	s.fails(exitUsage, "--every", "demo", "zombie", "--gateway", "http://127.0.0.1:1", "--every", "1ms")
	s.fails(exitUsage, "--rounds", "demo", "zombie", "--gateway", "http://127.0.0.1:1", "--rounds", "-1")
}
