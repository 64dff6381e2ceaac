package embeddedpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// template is a data directory with a cluster that was never written to. Copies of it spare most tests an initdb.
var template struct {
	once   sync.Once
	parent string
	err    error
}

// clusterDir returns a data directory that holds a cluster, never started.
func clusterDir(t *testing.T) string {
	t.Helper()
	dir := newDataDir(t)
	template.once.Do(func() { template.err = makeTemplate() })
	check(t, template.err)
	mustMkdir(t, dir)
	source := layout{root: filepath.Join(template.parent, "data")}.cluster()
	if output, err := exec.Command("cp", "-Rp", source, layout{root: dir}.cluster()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return dir
}

func makeTemplate() (err error) {
	if template.parent, err = os.MkdirTemp(process.TempParent(), "fg-"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if err := os.Chmod(template.parent, 0o711); err != nil {
		return err
	}
	cluster, err := Start(ctx, Config{DataDir: filepath.Join(template.parent, "data")})
	if err != nil {
		return err
	}
	return errors.Join(cluster.Stop(ctx), cluster.Err())
}

func removeTemplate() {
	if template.parent != "" {
		_ = os.RemoveAll(template.parent)
	}
}
