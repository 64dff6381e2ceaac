//go:build unix

package main

import (
	"testing"
)

func TestDemoBadInput(t *testing.T) {
	s := shell{t, ""}
	s.fails(exitUsage, "--url", "demo", "zombie", "--url", "nonsense")
	s.fails(exitUsage, "--every", "demo", "zombie", "--url", "http://127.0.0.1:1", "--every", "1ms")
	s.fails(exitUsage, "--stories", "demo", "zombie", "--url", "http://127.0.0.1:1", "--stories", "-1")
}
