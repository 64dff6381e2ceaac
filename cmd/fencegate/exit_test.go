package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func TestEveryCodeHasAnExitCode(t *testing.T) {
	for code, want := range map[api.Code]int{
		api.CodeLockHeld:            3,
		api.CodeTokenStale:          4,
		api.CodeTokenUnknown:        4,
		api.CodeLeaseLost:           4,
		api.CodeLeaseMismatch:       4,
		api.CodeLeaseExpired:        4,
		api.CodeNotFound:            5,
		api.CodeVersionMismatch:     6,
		api.CodeUnavailable:         7,
		api.CodeInvalidRequest:      8,
		api.CodeInvalidName:         8,
		api.CodeInvalidToken:        8,
		api.CodeTokenRequired:       8,
		api.CodeTooLarge:            8,
		api.CodeUnauthenticated:     9,
		api.CodeForbidden:           9,
		api.CodeUnknownHost:         1,
		api.CodeWrongFleet:          1,
		api.CodeDeadlock:            1,
		api.CodeNotExternal:         8,
		api.CodeUnsupported:         8,
		api.CodeConstraintViolation: 1,
		api.CodeRowsMismatch:        1,
		api.CodeRateLimited:         1,
		api.CodeInternal:            1,
		"one_that_is_not_known_yet": 1,
	} {
		err := fmt.Errorf("wrapped: %w", &lockclient.Error{Problem: &api.Problem{Code: code}})
		if got := exitCode(err); got != want {
			t.Errorf("%s exits with %d, want %d", code, got, want)
		}
	}
	for want, err := range map[int]error{
		0: nil,
		1: errors.New("disk full"),
		2: fmt.Errorf("wrapped: %w", usagef("--limit")),
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v exits with %d, want %d", err, got, want)
		}
	}
	if got := exitCode(&lockclient.AnswerError{}); got != 1 {
		t.Errorf("a foreign answer exits with %d, want 1", got)
	}
}

func TestHelpListsEveryExitCode(t *testing.T) {
	text := description()
	for code := exitOK; code <= exitBadInput; code++ {
		if !strings.Contains(text, fmt.Sprintf("\n  %d  ", code)) {
			t.Errorf("the help does not list exit code %d", code)
		}
	}
	for code, exit := range codeExits {
		if (exit == exitNotHolder || exit == exitBadInput) && !strings.Contains(text, string(code)) {
			t.Errorf("the help does not list %s", code)
		}
	}
}

// withoutVariable are the flags whose variable has another meaning: FENCEGATE_OWNER_ID is the holder's, which "fencegate
// run" sets, and must not select; FENCEGATE_LEASES is the gateway's.
var withoutVariable = map[string]bool{
	"rejections --owner-id": true, "session ls --owner-id": true, "policy set --leases": true,
}

// Scripts set FENCEGATE_URL once for all commands: the same flag has the same variable everywhere, and no other flag
// has it.
func TestEveryFlagHasItsEnvironmentVariable(t *testing.T) {
	p, err := newProgram()
	check(t, err)
	flags := 0
	var check func(node *kong.Node, hidden bool)
	check = func(node *kong.Node, hidden bool) {
		hidden = hidden || node.Hidden
		for _, flag := range node.Flags {
			if flag.Name == "help" || flag.Name == "version" {
				continue
			}
			flags++
			if strings.HasPrefix(flag.Name, "answer-") {
				t.Errorf("%s --%s would be set by --output env", node.FullPath(), flag.Name)
			}
			if withoutVariable[node.Path()+" --"+flag.Name] && len(flag.Envs) == 0 {
				continue
			}
			want := "FENCEGATE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
			if len(flag.Envs) != 1 || flag.Envs[0] != want {
				t.Errorf("%s --%s has the variables %q, want %s", node.FullPath(), flag.Name, flag.Envs, want)
			}
			if flag.Help == "" && !hidden {
				t.Errorf("%s --%s has no help", node.FullPath(), flag.Name)
			}
		}
		for _, child := range node.Children {
			check(child, hidden)
		}
	}
	check(p.parser.Model.Node, false)
	if flags < 40 {
		t.Errorf("saw %d flags only", flags)
	}
}
