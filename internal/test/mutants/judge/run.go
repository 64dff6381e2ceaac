package judge

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// Run runs what takes a test as a case: its first failure ends it.
func Run(ctx context.Context, f func(t testing.TB)) (err error) {
	t := &caseTB{ctx: ctx}
	defer func() {
		for _, cleanup := range slices.Backward(t.cleanups) {
			cleanup()
		}
		if cause := recover(); cause != nil {
			failed, ok := cause.(caseFailed)
			if !ok {
				panic(cause)
			}
			err = failed
		}
	}()
	f(t)
	return nil
}

// caseTB is the test that a case is given.
type caseTB struct {
	testing.TB
	ctx      context.Context //nolint:containedctx // that of a test
	cleanups []func()
}

type caseFailed string

func (f caseFailed) Error() string { return string(f) }

func (t *caseTB) Helper()                   {}
func (t *caseTB) Logf(string, ...any)       {}
func (t *caseTB) Context() context.Context  { return t.ctx }
func (t *caseTB) Cleanup(cleanup func())    { t.cleanups = append(t.cleanups, cleanup) }
func (t *caseTB) Error(args ...any)         { panic(caseFailed(fmt.Sprintln(args...))) }
func (t *caseTB) Fatal(args ...any)         { panic(caseFailed(fmt.Sprintln(args...))) }
func (t *caseTB) Errorf(f string, a ...any) { panic(caseFailed(fmt.Sprintf(f, a...))) }
func (t *caseTB) Fatalf(f string, a ...any) { panic(caseFailed(fmt.Sprintf(f, a...))) }
