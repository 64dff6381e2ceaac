//go:build unix

package names

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func TestEverythingIsMeasured(t *testing.T) {
	config := Config{
		Program: process.Build(t), DatabaseURL: postgres.Empty(t), Names: []int{1000, 2000}, Rounds: 2, Calls: 3,
		Progress: func(line string) { t.Log(line) },
	}
	report, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, s := range report.Samples {
		if s.Value <= 0 {
			t.Errorf("%+v", s)
		}
		got[s.What]++
	}
	for what, want := range map[string]int{
		"acquire": 4, "read a record": 4, "records of a resource": 4, "locks: a page in the middle": 4, "inventory": 4,
		"a gateway from its start to ready": 4, "number of locks (count=true)": 4, "disk, a row of leases": 2,
		"vacuum of fences after changes of 5 %": 2,
	} {
		if got[what] != want {
			t.Errorf("%s was measured %d times", what, got[what])
		}
	}
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "2000") {
		t.Errorf("%v\n%s", err, &table)
	}
	t.Logf("\n%s", &table)
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Names: []int{namesMin, namesMax}, Rounds: 1, Calls: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for flag, spoil := range map[string]func(*Config){
		"--names":  func(c *Config) { c.Names = []int{namesMin, 1} },
		"--rounds": func(c *Config) { c.Rounds = 0 },
		"--calls":  func(c *Config) { c.Calls = 0 },
	} {
		config := good
		spoil(&config)
		if err := config.check(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
