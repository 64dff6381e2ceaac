package guard

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// codes are those of the SQLSTATEs of fence.rejection_error.
var codes = map[string]api.Code{
	"LF101": api.CodeTokenRequired,
	"LF102": api.CodeTokenUnknown,
	"LF103": api.CodeTokenStale,
	"LF104": api.CodeLeaseMismatch,
	"LF105": api.CodeLeaseExpired,
	"LF106": api.CodeTokenReused,
	"LF107": "truncate",
}

// serverError is an error that PostgreSQL reported, as pgx and lib/pq return it.
type serverError interface {
	error
	SQLState() string
}

// stateOf returns the SQLSTATE of an error; "" if PostgreSQL did not report it.
func stateOf(err error) string {
	var reported serverError
	if errors.As(err, &reported) {
		return reported.SQLState()
	}
	return ""
}

// Error turns a rejection by fence.guard or by the trigger of a protected table into a *lockclient.Error. It returns
// every other error as it is, also one that it has turned before.
func Error(err error) error {
	var reported serverError
	if !errors.As(err, &reported) {
		return err
	}
	var turned *lockclient.Error
	code, ok := codes[reported.SQLState()]
	if !ok || errors.As(err, &turned) {
		return err
	}
	message, detail := fieldsOf(reported)
	problem := &api.Problem{
		Type: "about:blank", Title: "Rejected by the database", Status: http.StatusPreconditionFailed, Code: code,
		Detail: strings.TrimPrefix(message, detail.Resource+": "), Reason: detail.Reason, Resource: detail.Resource,
		Token: detail.FencingToken, Sequence: detail.Sequence, GrantedToken: detail.GrantedToken,
		LastToken: detail.LastToken, LastSequence: detail.LastSequence,
	}
	op := opOn(detail.Resource)
	if detail.Table != "" {
		op = "write to the table " + detail.Table + ", " + detail.Resource
	}
	return &lockclient.Error{Op: op, Problem: problem, Cause: err}
}

func opOn(resource string) string { return "transaction on " + resource }

// rejection is the DETAIL of fence.rejection_error.
type rejection struct {
	Resource     string `json:"resource"`
	Table        string `json:"table"`
	Reason       string `json:"reason"`
	FencingToken *int64 `json:"fencing_token"`
	Sequence     *int64 `json:"sequence"`
	GrantedToken *int64 `json:"granted_token"`
	LastToken    *int64 `json:"last_token"`
	LastSequence *int64 `json:"last_sequence"`
}

// fieldsOf returns the message with the advice, and the numbers. Both drivers have them in exported fields of these
// names, which JSON reads without an import of the driver.
func fieldsOf(err error) (message string, detail rejection) {
	var fields struct{ Message, Detail, Hint string }
	text, _ := json.Marshal(err)
	if json.Unmarshal(text, &fields) != nil || fields.Message == "" {
		return err.Error(), detail
	}
	_ = json.Unmarshal([]byte(fields.Detail), &detail) // a pooler may have left it out
	return strings.TrimSuffix(fields.Message+". "+fields.Hint, ". "), detail
}

// repeatable says that the same transaction may succeed the next time: after a serialization failure, a deadlock, or a
// connection that was dead before COMMIT was sent. After COMMIT, the error is a problem.
func repeatable(err error) bool {
	if lockclient.ProblemOf(err) != nil {
		return false
	}
	state := stateOf(err)
	return state == "40001" || state == "40P01" || errors.Is(err, driver.ErrBadConn)
}

// aborted says that an error of COMMIT proves that the transaction was rolled back. PostgreSQL reports an error before
// it commits, except for the end of the session or of a time limit while it waits for a standby. Errors of class 08 and
// 58 may be those of a pooler that has lost the server.
func aborted(err error) bool {
	state := stateOf(err)
	switch state {
	case "", "57P01", "57P02", "57P05", "25P04":
		return false
	}
	return !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "58")
}
