// Package compose checks docker-compose.yml.
package compose

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// composed returns docker-compose.yml as `docker compose` reads it: with anchors, defaults and profiles, checked
// against the schema.
func composed(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithProfiles([]string{"demo"}),
		cli.WithInterpolation(true))
	check(t, err)
	project, err := options.LoadProject(t.Context())
	check(t, err)
	return project
}

// exact matches a tag of three numbers, or a digest.
var exact = regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?@sha256:[0-9a-f]{64}$|:v?\d+\.\d+\.\d+(-[a-z0-9.]+)?$`)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestComposeServices(t *testing.T) {
	t.Parallel()
	for name, service := range composed(t).Services {
		if service.Build == nil && !exact.MatchString(service.Image) {
			t.Errorf("%s: the image %s is not pinned", name, service.Image)
		}
		for _, port := range service.Ports {
			if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() {
				t.Errorf("%s: port %s is published on %q, it must be a loopback address", name, port.Published, port.HostIP)
			}
		}
		if service.Privileged || service.NetworkMode == "host" || service.Pid == "host" {
			t.Errorf("%s has rights that it does not need", name)
		}
		if name != "postgres" && (!service.ReadOnly || len(service.CapDrop) == 0 || len(service.SecurityOpt) == 0) {
			t.Errorf("%s: its filesystem is not read-only, or it keeps rights that it does not need", name)
		}
		checkMounts(t, service)
	}
}

// TestComposeNetwork checks that the gateways trust the proxy alone, whose address no other container gets, and that
// they answer for the hosts that the other services use, and for no others.
func TestComposeNetwork(t *testing.T) {
	t.Parallel()
	project := composed(t)
	gateway := project.Services["gateway-1"].Environment
	proxy := project.Services["proxy"].Networks["default"].Ipv4Address
	network := project.Networks["default"].Ipam.Config[0]
	subnet, dynamic := netip.MustParsePrefix(network.Subnet), netip.MustParsePrefix(network.IPRange)
	address := netip.MustParseAddr(proxy)
	if !subnet.Contains(address) || !subnet.Contains(dynamic.Addr()) || dynamic.Contains(address) {
		t.Errorf("the proxy's address %s must be in %s, and not in %s", address, subnet, dynamic)
	}
	if trusted := *gateway["FENCEGATE_TRUSTED_PROXIES"]; trusted != proxy {
		t.Errorf("the gateways trust %s, expected the proxy's address %s alone", trusted, proxy)
	}
	hosts := strings.Split(*gateway["FENCEGATE_ALLOWED_HOSTS"], ",")
	want := []string{"localhost", "127.0.0.1", "proxy", "gateway-1", "gateway-2"}
	if !slices.Equal(hosts, want) {
		t.Errorf("the gateways answer for %q, expected %q", hosts, want)
	}
	for _, url := range regexp.MustCompile(`http://([a-z0-9-]+):`).FindAllStringSubmatch(
		strings.Join(project.Services["zombies"].Command, " "), -1) {
		if !slices.Contains(hosts, url[1]) {
			t.Errorf("the demo uses the host %s, for which the gateways do not answer", url[1])
		}
	}
}

// checkMounts checks that the mounted files of the clone exist, are readable by other users, and are mounted read-only.
func checkMounts(t *testing.T, service types.ServiceConfig) {
	t.Helper()
	for _, mount := range service.Volumes {
		if mount.Type == types.VolumeTypeVolume {
			continue
		}
		if !mount.ReadOnly {
			t.Errorf("%s: %s is not mounted read-only", service.Name, mount.Source)
		}
		err := filepath.Walk(mount.Source, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().Perm()&0o4 == 0 {
				t.Errorf("%s: others can't read %s", service.Name, path)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", service.Name, err)
		}
	}
}

// TestComposeSettings checks that the program knows all settings of the gateways: it ignores a misspelt variable.
func TestComposeSettings(t *testing.T) {
	t.Parallel()
	help, err := exec.CommandContext(t.Context(), process.Build(t), "serve", "--help").Output()
	check(t, err)
	project := composed(t)
	for _, name := range []string{"gateway-1", "gateway-2"} {
		gateway := project.Services[name]
		for variable := range gateway.Environment {
			if strings.HasPrefix(variable, "FENCEGATE_") && !bytes.Contains(help, []byte("$"+variable)) {
				t.Errorf("%s sets %s, which fencegate serve does not know", name, variable)
			}
		}
		if url := gateway.Environment["FENCEGATE_DATABASE_URL"]; url == nil || strings.Contains(*url, ":fencegate@") {
			t.Errorf("%s: the database's URL is missing, or has the password in it", name)
		}
	}
	postgres, gateway := project.Services["postgres"], project.Services["gateway-1"]
	if *postgres.Environment["POSTGRES_PASSWORD"] != *gateway.Environment["PGPASSWORD"] {
		t.Error("the gateways have another password than the database")
	}
}
