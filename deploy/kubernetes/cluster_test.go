package kubernetes

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// second is the cluster's. What Kubernetes waits for takes a tenth of its time, so that tests are fast. A process has
// all of its time: to answer a probe, to drain, to end.
const second = 100 * time.Millisecond

// What Kubernetes does not read from manifests.
const (
	crashPause  = 10 * second // the first one of CrashLoopBackOff
	endpointLag = 5 * second  // how long a service may send connections to a pod that was deleted
)

// cluster runs the chart without Kubernetes. It runs containers as processes, with their variables and files, and asks
// their probes as a kubelet does. It replaces pods as a Deployment does, by maxSurge, maxUnavailable and
// minReadySeconds. Its address is the service's: each connection is passed on to a pod that is ready.
type cluster struct {
	t        *testing.T
	programs map[string]string            // by the tags of the image
	objects  map[string]map[string]string // the content of secrets and config maps, by their names
	address  string                       // the service's

	dir     string
	running sync.WaitGroup

	mu      sync.Mutex
	spec    *apps.DeploymentSpec
	pods    []*pod
	onReady func(*pod)
}

func newCluster(t *testing.T, programs map[string]string, objects map[string]map[string]string) *cluster {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	c := &cluster{t: t, programs: programs, objects: objects, address: listener.Addr().String(), dir: t.TempDir(),
		onReady: func(*pod) {}}
	c.running.Go(func() { c.serve(listener) })
	ctx, stop := context.WithCancel(context.Background())
	c.running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(second / 10) {
			c.reconcile()
		}
	})
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		c.locked(func() { c.spec = nil })
		for _, p := range c.all() {
			c.locked(func() {
				p.delete()
				p.signal(syscall.SIGKILL)
			})
			<-p.ended
			if t.Failed() {
				t.Logf("the pod at %s logged:\n%s", p.address, &p.log)
			}
		}
		c.running.Wait()
	})
	return c
}

func (c *cluster) locked(work func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	work()
}

// all returns the pods, deleted ones that have not ended included.
func (c *cluster) all() (pods []*pod) {
	c.locked(func() { pods = slices.Clone(c.pods) })
	return pods
}

// helm installs, upgrades or rolls back, which is the name of the hook. Nothing is changed if the migration fails.
func (c *cluster) helm(hook, values string) error {
	c.t.Helper()
	all := decode(c.t, values)
	if job, is := all["migration"].(*batch.Job); is && strings.Contains(job.Annotations["helm.sh/hook"], hook) {
		pod := job.Spec.Template.Spec
		if output, err := c.newPod(pod).command(pod.Containers[0].Args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
	}
	c.locked(func() {
		if access, is := all["configmap"].(*core.ConfigMap); is {
			c.objects[access.Name] = access.Data
		}
		c.spec = &all.deployment().Spec
	})
	return nil
}

// reconcile is a turn of the controller of Deployments.
func (c *cluster) reconcile() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec == nil {
		return
	}
	var current, old []*pod
	available, newUnavailable := 0, 0
	for _, p := range c.pods {
		switch {
		case p.isDeleted():
			continue
		case p.isNew():
			current = append(current, p)
		default:
			old = append(old, p)
		}
		if c.isAvailable(p) {
			available++
		} else if p.isNew() {
			newUnavailable++
		}
	}
	replicas, rolling := int(*c.spec.Replicas), c.spec.Strategy.RollingUpdate
	surge, _ := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, replicas, true)
	away, _ := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, replicas, false)
	if len(current) < replicas && len(current)+len(old) < replicas+surge {
		p := c.newPod(c.spec.Template.Spec)
		c.pods = append(c.pods, p)
		c.running.Go(p.run)
	}
	removable := len(current) + len(old) - (replicas - away) - newUnavailable
	slices.SortStableFunc(old, func(a, b *pod) int { return a.readySince.Compare(b.readySince) }) // not ready first
	for _, p := range old[:max(0, min(removable, len(old)))] {
		if c.isAvailable(p) {
			if available == replicas-away {
				break
			}
			available--
		}
		p.delete()
	}
}

func (c *cluster) isAvailable(p *pod) bool {
	return !p.readySince.IsZero() && time.Since(p.readySince) >= time.Duration(c.spec.MinReadySeconds)*second
}

// serve passes each connection of the service on to a pod.
func (c *cluster) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		c.running.Go(func() {
			defer client.Close()
			address := c.endpoint()
			if address == "" {
				return
			}
			server, err := new(net.Dialer).Dial("tcp", address)
			if err != nil {
				return
			}
			defer server.Close()
			var back sync.WaitGroup
			back.Go(func() {
				_, _ = io.Copy(client, server)
				_ = client.(*net.TCPConn).CloseWrite()
			})
			_, _ = io.Copy(server, client)
			_ = server.(*net.TCPConn).CloseWrite()
			back.Wait()
		})
	}
}

// endpoint returns the address of a pod that is ready. One that was deleted is used for a while.
func (c *cluster) endpoint() (address string) {
	c.locked(func() {
		var ready []string
		for _, p := range c.pods {
			if !p.readySince.IsZero() && (!p.isDeleted() || time.Since(p.deletedAt) < endpointLag) {
				ready = append(ready, p.address)
			}
		}
		if len(ready) > 0 {
			address = ready[rand.IntN(len(ready))]
		}
	})
	return address
}
