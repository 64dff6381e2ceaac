package embeddedpg

import (
	"errors"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
)

func TestDefaultDataDir(t *testing.T) {
	home := func() (string, error) { return "/home/ada", nil }
	homeless := func() (string, error) { return "", errors.New("no home") }
	for _, test := range []struct {
		euid            int
		goos, stateHome string
		home            func() (string, error)
		want            string
	}{
		{0, "linux", "/state", home, "/var/lib/fencegate"},
		{1000, "linux", "/state", home, "/state/fencegate"},
		{1000, "linux", "state", home, "/home/ada/.local/state/fencegate"},
		{501, "darwin", "", home, "/home/ada/Library/Application Support/fencegate"},
		{1000, "linux", "", homeless, ""},
	} {
		dir, err := defaultDataDir(test.euid, test.goos, test.stateHome, test.home)
		if dir != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v: got %q, %v", test, dir, err)
		}
	}
}

func TestPickAccount(t *testing.T) {
	users := func(known ...user.User) func(string) (*user.User, error) {
		return func(name string) (*user.User, error) {
			for _, one := range known {
				if one.Username == name {
					return &one, nil
				}
			}
			return nil, user.UnknownUserError(name)
		}
	}
	postgres := user.User{Username: "postgres", Uid: "101", Gid: "104"}
	nobody := user.User{Username: "nobody", Uid: "-2", Gid: "-2"}

	if got, err := pickAccount(1000, users(postgres)); got != nil || err != nil {
		t.Errorf("an ordinary user runs it as %+v, %v", got, err)
	}
	if got, err := pickAccount(0, users(postgres, nobody)); err != nil || *got != (account{"postgres", 101, 104}) {
		t.Errorf("root with a user postgres: %+v, %v", got, err)
	}
	if got, err := pickAccount(0, users(nobody)); err != nil || *got != (account{"nobody", 1<<32 - 2, 1<<32 - 2}) {
		t.Errorf("root without a user postgres: %+v, %v", got, err)
	}
	if got, err := pickAccount(0, users()); err == nil {
		t.Errorf("root with neither: %+v", got)
	}
}

func TestSettingsThatAreNotForTheCaller(t *testing.T) {
	for _, name := range []string{"listen_addresses", "unix_socket_permissions", "hba_file", "Fsync", "x=y -c fsync", ""} {
		_, err := Config{DataDir: "/x", Settings: map[string]string{name: "1"}}.check()
		if err == nil {
			t.Errorf("%q was accepted", name)
			continue
		}
		mentions(t, err, name)
	}
	if _, err := (Config{DataDir: "/x", Settings: map[string]string{"fsync": "off",
		"auto_explain.log_timing": "1"}}).check(); err != nil {
		t.Error(err)
	}
}

func TestChildEnvHasNothingOfLibpq(t *testing.T) {
	got := childEnv([]string{"PATH=/bin", "PGDATA=/elsewhere", "PGOPTIONS=-c fsync=off", "LANG=de_DE",
		"LC_MESSAGES=de_DE", "PGPORT=1"})
	if want := []string{"PATH=/bin", "LC_ALL=C"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestServerLogIsPutAsideWhenLarge(t *testing.T) {
	path := t.TempDir() + "/postgres.log"
	check(t, os.WriteFile(path, []byte("earlier\n"), 0o600))
	file, start, err := openServerLog(path)
	check(t, err)
	if start != int64(len("earlier\n")) {
		t.Errorf("the log of this run starts at %d", start)
	}
	_, err = file.WriteString(strings.Repeat("line\n", 100) + "last")
	check(t, err)
	if tail := logTail(path, start); strings.Contains(tail, "earlier") ||
		strings.Count(tail, "line\n") != tailLinesMax-1 || !strings.HasSuffix(tail, "last") {
		t.Errorf("the tail is %q", tail)
	}
	check(t, file.Truncate(logSizeMax+1))
	check(t, file.Close())

	file, start, err = openServerLog(path)
	check(t, err)
	defer file.Close()
	if start != 0 {
		t.Errorf("a log of more than %d bytes was kept in use: the next run starts at %d", logSizeMax, start)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != logSizeMax+1 {
		t.Errorf("it was not put aside: %v, %v", info, err)
	}
}
