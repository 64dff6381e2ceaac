package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A flag precedes the environment, which precedes the file. The configuration that is shown can be used as the file.
func TestConfigurationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fencegate.yaml")
	check(t, os.WriteFile(path, []byte(`listen: 127.0.0.1:1
gateway-name: from-file
request-timeout: 7s
listen-url: postgres://gateway:geheim@127.0.0.1/db
migrate: false
trusted-proxies: [10.0.0.0/8, 192.0.2.1]
`), 0o600))
	s := shell{t, ""}
	t.Setenv("FENCEGATE_GATEWAY_NAME", "from-environment")
	t.Setenv("FENCEGATE_LISTEN", "127.0.0.1:2")
	shown := s.must("config", "--config", path, "--listen", "127.0.0.1:3")
	for _, line := range []string{
		"listen: 127.0.0.1:3", "gateway-name: from-environment", "request-timeout: 7s", "migrate: false",
		"trusted-proxies: [10.0.0.0/8, 192.0.2.1/32]", "drain-delay: 0s",
		"# listen-url: postgres://gateway:xxxxx@127.0.0.1/db",
	} {
		if !strings.Contains("\n"+shown, "\n"+line+"\n") {
			t.Errorf("%q is not in\n%s", line, shown)
		}
	}
	t.Setenv("FENCEGATE_GATEWAY_NAME", "")
	t.Setenv("FENCEGATE_LISTEN", "")
	check(t, os.Unsetenv("FENCEGATE_GATEWAY_NAME"))
	check(t, os.Unsetenv("FENCEGATE_LISTEN"))
	check(t, os.WriteFile(path, []byte(shown), 0o600))
	t.Setenv("FENCEGATE_CONFIG", path)
	if again := s.must("config"); again != strings.Replace(shown, "# listen-url: postgres://gateway:xxxxx@127.0.0.1/db\n",
		"# listen-url:\n", 1) {
		t.Errorf("read again, it is\n%s\nwant\n%s", again, shown)
	}

	// The file is that of serve, and of no other command.
	check(t, os.WriteFile(path, []byte("listen: a\nlisten-host: b\n"), 0o600))
	s.must("version")
	for _, command := range []string{"serve", "config"} {
		s.fails(exitUsage, path+`: line 2: unknown key "listen-host"`, command)
	}
	s.fails(exitUsage, "no such file", "serve", "--config", path+".missing")
}

// serve has the settings of its file.
func TestServeWithConfigurationFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fencegate.yaml")
	check(t, os.WriteFile(path, []byte("body-bytes-max: 2000\n"), 0o600))
	s := newShell(t, "--config", path)
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	s.fails(exitBadInput, "too_large", "put", "a", "k", strings.Repeat("v", 2001), "--token", token)
}
