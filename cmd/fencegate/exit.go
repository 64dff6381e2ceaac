package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// The exit codes. Scripts rely on them: none changes its meaning.
const (
	exitOK              = 0
	exitFailure         = 1
	exitUsage           = 2
	exitLockHeld        = 3
	exitNotHolder       = 4
	exitNotFound        = 5
	exitVersionMismatch = 6
	exitUnavailable     = 7
	exitBadInput        = 8
	exitNotAllowed      = 9
)

var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailure, "any other failure"},
	{exitUsage, "the command line is wrong"},
	{exitLockHeld, "the lock is held by another lease"},
	{exitNotHolder, "you are not the holder: token_stale, token_unknown, lease_lost,\n     lease_mismatch, lease_expired; " +
		"or the number of the write was used before"},
	{exitNotFound, "there is no such lock, record, session or protected table"},
	{exitVersionMismatch, "the record has another version than demanded"},
	{exitUnavailable, "the gateway or its database is unavailable, or did not answer in time, or a\n     table stayed locked"},
	{exitBadInput, "the input was refused: invalid_request, invalid_name, invalid_token,\n     token_required, too_large, not_external, unsupported_by_provider"},
	{exitNotAllowed, "you may not do this: unauthenticated, forbidden, or a right of the database's role"},
}

// codeExits maps codes of problems to exit codes. All others exit with exitFailure.
var codeExits = map[api.Code]int{
	api.CodeLockHeld:        exitLockHeld,
	api.CodeTokenStale:      exitNotHolder,
	api.CodeTokenUnknown:    exitNotHolder,
	api.CodeLeaseLost:       exitNotHolder,
	api.CodeLeaseMismatch:   exitNotHolder,
	api.CodeLeaseExpired:    exitNotHolder,
	api.CodeNotFound:        exitNotFound,
	api.CodeVersionMismatch: exitVersionMismatch,
	api.CodeUnavailable:     exitUnavailable,
	api.CodeInvalidRequest:  exitBadInput,
	api.CodeInvalidName:     exitBadInput,
	api.CodeInvalidToken:    exitBadInput,
	api.CodeTokenRequired:   exitBadInput,
	api.CodeTooLarge:        exitBadInput,
	api.CodeNotExternal:     exitBadInput,
	api.CodeUnsupported:     exitBadInput,
	api.CodeUnauthenticated: exitNotAllowed,
	api.CodeForbidden:       exitNotAllowed,
}

// usageError is a command line that is wrong in a way that the parser can't see.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func isUsage(err error) bool {
	var parse *kong.ParseError
	var usage *usageError
	return errors.As(err, &parse) || errors.As(err, &usage)
}

// insufficientPrivilege is the SQLSTATE of what the role may not do.
const insufficientPrivilege = "42501"

// stateExits maps SQLSTATEs to exit codes.
var stateExits = map[string]int{
	insufficientPrivilege: exitNotAllowed,
	"57014":               exitUnavailable, // query_canceled: it did not answer in time
}

func exitCode(err error) int {
	var problem *api.Problem
	var ran *runError
	var failed *pgconn.PgError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ran):
		return ran.code
	case isUsage(err):
		return exitUsage
	case errors.As(err, &problem):
		if code, ok := codeExits[problem.Code]; ok {
			return code
		}
	case errors.Is(err, store.ErrUnavailable):
		return exitUnavailable
	case errors.As(err, &failed):
		if code, ok := stateExits[failed.Code]; ok {
			return code
		}
	}
	return exitFailure
}

func description() string {
	var text strings.Builder
	text.WriteString("A storage gateway that enforces fencing tokens, and the command line to it.\n\n" +
		"Every flag can be set by an environment variable, too: --owner-id by\nFENCEGATE_OWNER_ID.\n\nExit codes:\n")
	for _, exit := range exitMeanings {
		fmt.Fprintf(&text, "  %d  %s\n", exit.code, exit.meaning)
	}
	text.WriteString("\n\"fencegate run\" and \"fencegate elect\" have others: see their help.")
	return text.String()
}

// hint adds to the gateway's words, which are of the API, what the problem's numbers mean and which command or flag
// comes next; "" where there is nothing to add.
func hint(err error) string {
	var problem *api.Problem
	if missing, ok := errors.AsType[*fs.PathError](err); ok && missing.Path == os.TempDir() {
		return "TMPDIR must name a directory in which this user may write."
	}
	if !errors.As(err, &problem) {
		return ""
	}
	switch problem.Code {
	case api.CodeUnavailable:
		if failed := (*lockclient.Error)(nil); errors.As(err, &failed) && failed.Cause != nil {
			return noAnswer(failed.Cause, problem.Retryable)
		}
	case api.CodeUnauthenticated:
		return "Give an API key or a token by --token-file or FENCEGATE_BEARER_TOKEN, or a certificate by --cert. " +
			"\"fencegate keys create\" makes keys."
	case api.CodeForbidden:
		return "\"fencegate whoami\" shows what this credential may do."
	case api.CodeNotFound:
		path, below := strings.CutPrefix(problem.Instance, "/v1/")
		if path != "" && (!below || strings.HasPrefix(path, "v1/")) {
			return "Is the URL right? It has a path only where a proxy adds one (--url or FENCEGATE_URL)."
		}
	case api.CodeLockHeld:
		return "--wait 1m waits in the queue; \"fencegate lock get\" shows the holder; " +
			"\"fencegate lock break --reason TEXT\" ends its lease."
	case api.CodeTokenStale:
		if problem.Reason == "reused" {
			return nextNumber(problem)
		}
	case api.CodeTokenUnknown:
		if problem.GrantedToken != nil {
			if *problem.GrantedToken == 0 {
				return "None was granted on this name."
			}
			return fmt.Sprintf("The newest token that was granted is %d.", *problem.GrantedToken)
		}
	case api.CodeLeaseMismatch:
		return "Give the lease_id that the acquire of this token printed: --lease-id."
	case api.CodeVersionMismatch:
		if problem.Version != nil && *problem.Version > 0 {
			return fmt.Sprintf("Its version is now %d.", *problem.Version)
		}
		return "There is no such record now."
	}
	return ""
}

// noAnswer returns a hint for a gateway that could not be called.
func noAnswer(cause error, retryable bool) string {
	var unknown x509.UnknownAuthorityError
	var connection *net.OpError
	switch {
	case errors.As(cause, &unknown):
		return "--ca-cert or FENCEGATE_CA_CERT names the PEM file of that authority."
	case errors.As(cause, &connection) && connection.Op == "remote error": // an alert of TLS
		return "Give a certificate that the authority of the gateway's --client-ca has signed: --cert and --key."
	case !retryable: // the error says what to do
		return ""
	}
	return "Is the gateway running there? Another is named by --url or FENCEGATE_URL; --timeout allows more time."
}

// notInEnum matches the parser's error of a value that is none of a list.
var notInEnum = regexp.MustCompile(`^(.+) must be one of "(.*)" but got "(.*)"$`)

// plain rewrites errors of the parser for people.
func plain(err error) error {
	text := strings.Replace(err.Error(), "a valid 64 bit int", "a whole number", 1)
	parts := notInEnum.FindStringSubmatch(text)
	if parts == nil {
		return errors.New(text)
	}
	values := slices.DeleteFunc(strings.Split(parts[2], `","`), func(value string) bool { return value == "" })
	text = fmt.Sprintf("%s is %q, it must be one of %s", parts[1], parts[3], strings.Join(values, ", "))
	if i := slices.IndexFunc(values, func(value string) bool { return near(value, parts[3]) }); i >= 0 {
		text += fmt.Sprintf(": did you mean %s?", values[i])
	}
	return errors.New(text)
}

// near reports whether a letter of one word was added, left out, changed, or exchanged with its neighbor in the other.
func near(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}

// nextNumber returns a hint with the number of the next write under a token.
func nextNumber(problem *api.Problem) string {
	if problem.Token == nil || problem.LastSequence == nil {
		return ""
	}
	next := strconv.FormatInt(*problem.LastSequence+1, 10)
	return fmt.Sprintf("The lease is not lost. The next number is free: --sequence %s, or --token %d.%[1]s.", next,
		*problem.Token)
}
