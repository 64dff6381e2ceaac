package guard_test

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/lockclient/internal/guard"
)

// serverError is an error of PostgreSQL, with the fields of those of pgx and lib/pq.
type serverError struct{ Code, Message, Detail, Hint string }

func (e *serverError) Error() string    { return "ERROR: " + e.Message }
func (e *serverError) SQLState() string { return e.Code }

func stateError(state string) error { return &serverError{Code: state, Message: "message"} }

// TestErrorKinds checks what each error means: the code of a rejection, whether the transaction runs again, and whether
// an error of COMMIT proves that nothing was committed.
func TestErrorKinds(t *testing.T) {
	t.Parallel()
	problem := &lockclient.Error{Problem: &api.Problem{Code: api.CodeUnavailable}, Cause: stateError("40001")}
	for _, c := range []struct {
		err                 error
		code                api.Code
		repeatable, aborted bool
	}{
		{stateError("LF101"), api.CodeTokenRequired, false, true},
		{stateError("LF102"), api.CodeTokenUnknown, false, true},
		{stateError("LF103"), api.CodeTokenStale, false, true},
		{stateError("LF104"), api.CodeLeaseMismatch, false, true},
		{stateError("LF105"), api.CodeLeaseExpired, false, true},
		{stateError("LF106"), api.CodeTokenReused, false, true},
		{stateError("LF107"), "truncate", false, true},
		{stateError("40001"), "", true, true},
		{stateError("40P01"), "", true, true},
		{stateError("23505"), "", false, true},
		{stateError("57014"), "", false, true},
		{stateError("57P01"), "", false, false},
		{stateError("57P02"), "", false, false},
		{stateError("57P05"), "", false, false},
		{stateError("25P04"), "", false, false},
		{stateError("08006"), "", false, false},
		{stateError("58000"), "", false, false},
		{sqldriver.ErrBadConn, "", true, false},
		{io.EOF, "", false, false},
		{problem, api.CodeUnavailable, false, true},
	} {
		err := fmt.Errorf("wrapped: %w", c.err)
		turned := guard.Error(err)
		again := guard.Error(turned)
		var code api.Code
		if found := lockclient.ProblemOf(turned); found != nil {
			code = found.Code
		}
		if code != c.code || !errors.Is(turned, c.err) || !errors.Is(turned, again) {
			t.Errorf("%v is turned into %v with the code %q, expected %q and the cause", err, turned, code, c.code)
		}
		if got := guard.Repeatable(err); got != c.repeatable {
			t.Errorf("%v %v: repeatable is %t", c.err, guard.StateOf(err), got)
		}
		if got := guard.Aborted(err); got != c.aborted {
			t.Errorf("%v %v: aborted is %t", c.err, guard.StateOf(err), got)
		}
	}
}

// TestErrorText checks that the problem has the message without the resource, then the advice, and that it has the
// message alone if a pooler leaves out the rest.
func TestErrorText(t *testing.T) {
	t.Parallel()
	const detail = `{"resource":"accounts/1","table":"public.accounts","reason":"superseded","granted_token":4}`
	for _, c := range []struct{ message, detail, hint, want, op string }{
		{"accounts/1: it is stale", detail, "Stop", "it is stale. Stop", "write to the table public.accounts, accounts/1"},
		{"accounts/1: it is stale", "", "", "accounts/1: it is stale", "transaction on "},
		{"", "", "", "ERROR: ", "transaction on "},
	} {
		err := guard.Error(&serverError{"LF103", c.message, c.detail, c.hint})
		var turned *lockclient.Error
		if !errors.As(err, &turned) || turned.Problem.Detail != c.want || turned.Op != c.op {
			t.Errorf("%+v: the error is %+v", c, err)
		}
		if known := turned.Problem.GrantedToken != nil; known != (c.detail != "") {
			t.Errorf("%+v: the problem is %+v", c, turned.Problem)
		}
	}
}
