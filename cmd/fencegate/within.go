package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// The environment that "fencegate run" gives its command, beside that of --url and of the connection.
const (
	variableLock    = "FENCEGATE_LOCK"
	variableToken   = "FENCEGATE_TOKEN"
	variableLeaseID = "FENCEGATE_LEASE_ID"
	variableOwnerID = "FENCEGATE_OWNER_ID"
)

// variableSessionID is read as the flag --session-id.
const variableSessionID = "FENCEGATE_SESSION_ID"

// resource reads the name of a resource. "." is that of the lock that this runs under, "./x" is x below it: no name has
// a segment ".".
func resource(given string) (string, error) {
	below, isBelow := strings.CutPrefix(given, "./")
	if given != "." && !isBelow {
		return given, nil
	}
	lock := os.Getenv(variableLock)
	switch {
	case lock == "":
		return "", usagef("%s means the lock in %s, which \"fencegate run\" and \"lock acquire -o env\" set: it is not set",
			given, variableLock)
	case isBelow:
		return lock + "/" + below, nil
	}
	return lock, nil
}

// writeFlags say under which lease something is written.
type writeFlags struct {
	Token    tokenFlag `help:"Fencing token of the lease: 34, or 34.2 for the second of many writes under it." required:"" placeholder:"TOKEN"`
	Sequence *int64    `help:"Number of this write under the token, where that has none: 1 for the first, then greater ones. Without it, a token admits one write." placeholder:"N"`
	LeaseID  string    `help:"Check that the token belongs to this lease." placeholder:"UUID"`
}

// number is the token with its sequence.
func (f writeFlags) number() (api.FencingToken, error) {
	token := f.Token.FencingToken
	switch {
	case f.Sequence == nil:
		return token, nil
	case token.Sequence != nil:
		return token, usagef("--token %s has a sequence: leave out --sequence %d", token, *f.Sequence)
	case *f.Sequence < 0 || *f.Sequence > api.MaxToken:
		return token, usagef("--sequence is %d, it must be 0 to 2^53-1", *f.Sequence)
	}
	token.Sequence = f.Sequence
	return token, nil
}

// leaseID is the one that was given. The lease_id of the lock that this runs under says nothing of a token that is
// another's.
func (f writeFlags) leaseID() string {
	within, err := api.ParseFencingToken(os.Getenv(variableToken))
	if f.LeaseID == os.Getenv(variableLeaseID) && err == nil && within.Token != f.Token.Token {
		return ""
	}
	return f.LeaseID
}

// nextNumber returns a hint with the number of the next write under a token.
func nextNumber(problem *api.Problem) string {
	if problem.Token == nil || problem.LastSequence == nil {
		return ""
	}
	next := strconv.FormatInt(*problem.LastSequence+1, 10)
	return "The next number is free: --sequence " + next + ", or --token " + strconv.FormatInt(*problem.Token, 10) +
		"." + next + "."
}
