//go:build !unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errUnix says that the demo can't run here: processes are frozen by signals.
var errUnix = fmt.Errorf("the demos freeze processes, which needs a Unix system: %w", errors.ErrUnsupported)

func freeze(context.Context, *os.Process) error { return errUnix }

func thaw(*os.Process) error { return errUnix }

func ownGroup() *syscall.SysProcAttr { return nil }

func mapNumber(string) (*uint32, func(), error) { return nil, nil, errUnix }
