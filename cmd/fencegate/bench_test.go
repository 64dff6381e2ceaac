//go:build unix

package main

import "testing"

func TestBenchAloneMeasuresWrites(t *testing.T) {
	for want, args := range map[string][]string{
		"bench writes": {"bench", "--clients", "1,8", "--rounds", "2"},
		"bench locks":  {"bench", "locks", "--measure", "crowd", "--waiters", "500"},
	} {
		parser, err := newParser(&commands{}, &console{}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		selected, err := parser.Parse(args)
		if err != nil || selected.Command() != want {
			t.Errorf("%q: got %v, %v", args, selected, err)
		}
	}
}
