package configfile

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

type settings struct {
	DatabaseURL string        `placeholder:"URL"`
	Listen      string        `default:"127.0.0.1:8080"`
	Timeout     time.Duration `default:"10s"`
	QueueMax    int           `default:"5"`
	Ratio       float64       `default:"1"`
	Migrate     bool          `default:"true" negatable:""`
	Leases      string        `enum:"postgres,redis" default:"postgres"`
	Names       []string
	Proxies     []netip.Addr
	AccessFile  string `type:"path"`
	Secret      string `hidden:""`
}

func flagsOf(t *testing.T, target *settings, args ...string) []*kong.Flag {
	t.Helper()
	parser, err := kong.New(target, kong.Writers(io.Discard, io.Discard))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Flags
}

// An error about a file names the line, and the key with its fault.
func TestErrorsNameTheLineAndTheKey(t *testing.T) {
	flags := flagsOf(t, &settings{})
	for text, want := range map[string]string{
		"listen: a:1\n\nlisen: a:2\n":    `line 3: unknown key "lisen"`,
		"--listen: a\n":                  `line 1: unknown key "--listen"`,
		"help: true\n":                   `line 1: unknown key "help"`,
		"secret: x\n":                    `line 1: unknown key "secret"`,
		"listen: a\nlisten: b\n":         `line 2: the key "listen" is there twice`,
		"# none\nqueue-max: many\n":      "line 2: queue-max: ",
		"timeout: 10\n":                  "line 1: timeout: ",
		"migrate: perhaps\n":             "line 1: migrate: ",
		"leases: etcd\n":                 `line 1: leases: it must be one of postgres,redis, not "etcd"`,
		"listen:\n":                      "line 1: listen: it must be a single",
		"listen: [a, b]\n":               "line 1: listen: it must be a single",
		"names: {a: b}\n":                "line 1: names: it must be a list",
		"names:\n  - a\n  - [b]\n":       "line 2: names: its items",
		"proxies: [10.0.0.1, nowhere]\n": "line 1: proxies: ",
		"- listen\n":                     "line 1: it must have a key and a value",
		"listen: a\n---\nlisten: b\n":    "more than one document",
		"listen: 'a\n":                   "line",
	} {
		if _, err := parse([]byte(text), flags); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "# nothing\n"} {
		if values, err := parse([]byte(text), flags); err != nil || len(values) > 0 {
			t.Errorf("%q: got %v, %v", text, values, err)
		}
	}
	if _, err := Read("missing.yaml", flags); !os.IsNotExist(err) {
		t.Errorf("of a file that is missing: %v", err)
	}
}

// What Write writes is what Read reads, but for passwords: they are nowhere in it.
func TestWrittenConfigurationCanBeRead(t *testing.T) {
	flags := flagsOf(t, &settings{}, "--database-url=postgres://u:geheim@db/x", "--timeout=90s", "--queue-max=7",
		"--no-migrate", "--names=a,b: c", "--proxies=10.0.0.1,::1", "--listen=yes")
	var out strings.Builder
	if err := Write(&out, flags); err != nil {
		t.Fatal(err)
	}
	const want = `# database-url: postgres://u:xxxxx@db/x
listen: "yes"
timeout: 1m30s
queue-max: 7
ratio: 1
migrate: false
leases: postgres
names: [a, 'b: c']
proxies: [10.0.0.1, '::1']
# access-file:
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	values, err := Read(path, flags)
	if err != nil || len(values) != 8 || values["listen"] != "yes" || values["migrate"] != "false" ||
		values["timeout"] != "1m30s" {
		t.Errorf("it was read as %v (%v)", values, err)
	}
}

// Passwords are left out wherever a connection may have them.
func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://u:geheim@h:5432/db":                       "postgres://u:xxxxx@h:5432/db",
		"postgres://u@h:1,i:2/db?sslmode=require":             "postgres://u@h:1,i:2/db?sslmode=require",
		"postgres://h/db?password=geheim&sslpassword=geheim2": "postgres://h/db?password=xxxxx&sslpassword=xxxxx",
		"redis://:geheim@h":                                   "redis://:xxxxx@h",
		"postgres://u:ge/heim@h/db":                           "xxxxx",
		"host=h password=geheim user=u":                       "host=h password=xxxxx user=u",
		`host=h Password = 'ge heim\' x' user=u`:              "host=h Password = xxxxx user=u",
		"127.0.0.1:8080":                                      "127.0.0.1:8080",
		"http://h:4318/a@b":                                   "http://h:4318/a@b",
	} {
		if got, secret := redact(text); got != want || secret != (got != text) {
			t.Errorf("%q is shown as %q (%t), want %q", text, got, secret, want)
		}
	}
}
