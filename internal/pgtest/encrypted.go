package pgtest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/freeport"
)

// NewEncrypted runs a PostgreSQL of one test's own that listens by TCP, takes no connection without TLS, and has this
// certificate. It returns its address. The role and the database are fencegate, without a password.
func NewEncrypted(t testing.TB, certificate, key []byte) string {
	t.Helper()
	cluster := NewCluster(t)
	cluster.Stop()
	dir := filepath.Join(cluster.dataDir, "cluster")
	info, err := os.Stat(dir)
	check(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	for name, text := range map[string][]byte{
		"server.crt": certificate, "server.key": key, "encrypted_hba.conf": []byte("hostssl all all 127.0.0.1/32 trust\n"),
	} {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, text, 0o600))
		check(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}
	binaries, err := embeddedpg.FindBinaries()
	check(t, err)
	address := freeport.Address(t)
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	command := exec.Command(binaries.Path("postgres"), "-D", dir, "-c", "listen_addresses=127.0.0.1", "-c", "port="+port,
		"-c", "unix_socket_directories=", "-c", "hba_file="+filepath.Join(dir, "encrypted_hba.conf"),
		"-c", "ssl=on", "-c", "dynamic_shared_memory_type=mmap")
	command.Dir, command.Env = dir, []string{"LC_ALL=C"}
	if os.Geteuid() == 0 { // PostgreSQL refuses root
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	check(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGINT)
		_ = command.Wait()
	})
	await.True(t, "PostgreSQL listens", func() bool {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	return address
}
