package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// pod is a pod of one container.
type pod struct {
	cluster   *cluster
	spec      core.PodSpec
	address   string // its own
	env       []string
	log       process.Buffer
	deleted   chan struct{} // closed when it is deleted
	ended     chan struct{} // closed when it has ended after that
	deletedAt time.Time

	// The cluster's mutex guards these.
	process    *os.Process
	starts     int
	started    bool      // by its startup probe
	lives      int       // how often its liveness probe succeeded, as far as a test counts
	readySince time.Time // zero: it is not ready
}

// isNew says whether a pod is of the newest manifests.
func (p *pod) isNew() bool { return reflect.DeepEqual(p.spec, p.cluster.spec.Template.Spec) }

// newPod makes the files of a pod, and gives it an address.
func (c *cluster) newPod(spec core.PodSpec) *pod {
	p := &pod{cluster: c, spec: spec, deleted: make(chan struct{}), ended: make(chan struct{})}
	container := spec.Containers[0]
	var err error
	p.address, err = network.FindAddress(context.Background())
	dir, dirErr := os.MkdirTemp(c.dir, "")
	err = errors.Join(err, dirErr)
	here := []string{fmt.Sprintf("0.0.0.0:%d", portOf(container)), p.address}
	for _, mount := range container.VolumeMounts {
		here = append(here, mount.MountPath+"/", filepath.Join(dir, mount.Name)+"/")
	}
	replacer := strings.NewReplacer(here...)
	for _, volume := range spec.Volumes {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, volume.Name), 0o700))
		for _, name := range sources(volume) {
			if c.objects[name] == nil {
				err = errors.Join(err, fmt.Errorf("the volume %s needs %s", volume.Name, name))
			}
			for file, text := range c.objects[name] {
				path := filepath.Join(dir, volume.Name, file)
				err = errors.Join(err, os.WriteFile(path, []byte(replacer.Replace(text)), 0o600))
			}
		}
	}
	for _, from := range container.EnvFrom {
		for name, value := range c.objects[from.SecretRef.Name] {
			p.env = append(p.env, name+"="+value)
		}
	}
	for _, variable := range container.Env {
		value, is := variable.Value, true
		if from := variable.ValueFrom; from != nil {
			value, is = c.objects[from.SecretKeyRef.Name][from.SecretKeyRef.Key]
		}
		if !is {
			err = errors.Join(err, fmt.Errorf("%s needs a secret", variable.Name))
		}
		p.env = append(p.env, variable.Name+"="+replacer.Replace(value))
	}
	if err != nil {
		c.t.Error(err)
	}
	return p
}

func portOf(container core.Container) int32 {
	for _, port := range container.Ports {
		return port.ContainerPort
	}
	return 0
}

// sources returns the names of the objects whose content is in a volume.
func sources(volume core.Volume) (names []string) {
	if volume.Secret != nil {
		names = append(names, volume.Secret.SecretName)
	}
	if volume.ConfigMap != nil {
		names = append(names, volume.ConfigMap.Name)
	}
	if volume.Projected == nil {
		return names
	}
	for _, source := range volume.Projected.Sources {
		switch {
		case source.Secret != nil:
			names = append(names, source.Secret.Name)
		case source.ConfigMap != nil:
			names = append(names, source.ConfigMap.Name)
		case source.ServiceAccountToken != nil:
			names = append(names, "service-account")
		}
	}
	return names
}

// command is a command in the container, which has no other variables than the manifest's.
func (p *pod) command(args ...string) *exec.Cmd {
	_, tag, _ := strings.Cut(p.spec.Containers[0].Image, ":")
	tag, _, _ = strings.Cut(tag, "@")
	command := exec.Command(p.cluster.programs[tag], args...)
	command.Env = p.env
	return command
}

func (p *pod) isDeleted() bool {
	select {
	case <-p.deleted:
		return true
	default:
		return false
	}
}

// delete ends a pod as a kubelet does. The cluster is locked.
func (p *pod) delete() {
	if p.isDeleted() {
		return
	}
	p.deletedAt = time.Now()
	close(p.deleted)
	p.signal(syscall.SIGTERM)
	late := time.AfterFunc(time.Duration(*p.spec.TerminationGracePeriodSeconds)*time.Second, func() {
		p.cluster.t.Errorf("the pod at %s did not end within its grace period", p.address)
		p.signal(syscall.SIGKILL)
	})
	p.cluster.running.Go(func() {
		<-p.ended
		late.Stop()
		p.cluster.locked(func() {
			p.cluster.pods = slices.DeleteFunc(p.cluster.pods, func(other *pod) bool { return other == p })
		})
	})
}

// signal sends a signal to the container, if it has one that runs. The cluster is locked.
func (p *pod) signal(signal syscall.Signal) {
	if p.process != nil {
		_ = p.process.Signal(signal)
	}
}

// run starts the container, and starts it again when it has ended, until the pod is deleted.
func (p *pod) run() {
	defer close(p.ended)
	for !p.isDeleted() {
		command := p.command(p.spec.Containers[0].Args...)
		command.Stderr = &p.log
		var err error
		p.cluster.locked(func() {
			err = command.Start()
			p.process, p.starts = command.Process, p.starts+1
			if p.isDeleted() {
				p.signal(syscall.SIGKILL)
			}
		})
		if err != nil {
			p.cluster.t.Error(err)
			return
		}
		ended := make(chan struct{})
		go func() {
			_ = command.Wait()
			close(ended)
		}()
		p.watch(ended)
		<-ended
		p.cluster.locked(func() { p.started, p.readySince = false, time.Time{} })
		select {
		case <-p.deleted:
		case <-time.After(crashPause):
		}
	}
}

// watch asks the probes until the container has ended, and ends it where they say so.
func (p *pod) watch(ended <-chan struct{}) {
	container := p.spec.Containers[0]
	p.ask(ended, container.StartupProbe, func(ok bool) (more bool) {
		p.started = ok
		if !ok {
			p.signal(syscall.SIGKILL)
		}
		return false
	})
	var readiness sync.WaitGroup
	defer readiness.Wait()
	readiness.Go(func() {
		p.ask(ended, container.ReadinessProbe, func(ok bool) (more bool) {
			if !ok {
				p.readySince = time.Time{}
			} else if p.readySince.IsZero() {
				p.readySince = time.Now()
				p.cluster.onReady(p)
			}
			return true
		})
	})
	p.ask(ended, container.LivenessProbe, func(ok bool) (more bool) {
		if p.lives++; !ok && !p.isDeleted() {
			p.lives = 0
			p.signal(syscall.SIGKILL)
		}
		return ok
	})
}

// ask calls outcome, with the cluster locked, for each success of a probe and for each failure from its threshold on.
func (p *pod) ask(ended <-chan struct{}, probe *core.Probe, outcome func(ok bool) (more bool)) {
	ticks := time.NewTicker(time.Duration(probe.PeriodSeconds) * second)
	defer ticks.Stop()
	failures := int32(0)
	for more := true; more; {
		select {
		case <-ended:
			return
		case <-ticks.C:
		}
		ok := p.answers(probe)
		if failures++; ok {
			failures = 0
		}
		if ok || failures >= cmp.Or(probe.FailureThreshold, 3) {
			p.cluster.locked(func() { more = outcome(ok) })
		}
	}
}

func (p *pod) answers(probe *core.Probe) bool {
	client := http.Client{
		Timeout: time.Duration(max(1, probe.TimeoutSeconds)) * time.Second,
		// A kubelet verifies no certificate.
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	response, err := client.Get(p.url() + probe.HTTPGet.Path)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode < http.StatusBadRequest
}

func (p *pod) url() string {
	return strings.ToLower(string(p.spec.Containers[0].LivenessProbe.HTTPGet.Scheme)) + "://" + p.address
}
