package guard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// settleTime is how long the outcome of a COMMIT is asked for. A failover may take as long.
	settleTime = 30 * time.Second
	// extraTime is how long after the end of the caller's ctx a rollback or the question for an outcome may take.
	extraTime = 5 * time.Second
)

// settle returns the outcome of the transaction, whose COMMIT got no answer: nil if it was committed, and otherwise an
// error that matches ErrOutcomeUnknown only if the database does not know, or can't be asked.
func (n numbered) settle(ctx context.Context, pool Pool, lost error) error {
	ctx, cancel := extend(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		verdict, err := n.ask(ctx, pool)
		switch {
		case err != nil:
			if isDenied(err) || pause(ctx, attempt) != nil {
				return n.unavailable(api.OutcomeUnknown, "COMMIT was sent, and the database could not be asked for "+
					"its outcome: "+err.Error()+". It may have been committed", lost)
			}
		case verdict.Code == api.CodeTokenReused:
			return nil
		case verdict.Code == admitted:
			return n.unavailable(api.OutcomeNotApplied, "COMMIT failed, and the transaction was rolled back", lost)
		default:
			err := &lockclient.Error{Op: opOn(verdict.Resource), Problem: verdict, Earlier: lost}
			verdict.Detail = "COMMIT got no answer, and the fence has changed since"
			if !errors.Is(err, lockclient.ErrOutcomeUnknown) {
				verdict.Detail, verdict.Outcome = "COMMIT failed, and the transaction was rolled back", api.OutcomeNotApplied
			}
			return err
		}
	}
}

// isDenied says that the database will never answer: there is no fence.outcome, or the role may not call it.
func isDenied(err error) bool { return strings.HasPrefix(stateOf(err), "42") }

// extend returns a context that ends after settleTime, but soon after ctx.
func extend(ctx context.Context) (context.Context, func()) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(extraTime, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// ask returns the verdict on the transaction's own number, on another connection. It changes nothing.
func (n numbered) ask(ctx context.Context, pool Pool) (*api.Problem, error) {
	conn, err := pool.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	tx, err := conn.BeginPlain(ctx)
	if err != nil {
		return nil, err
	}
	defer rollback(ctx, tx)
	var granted, last, lastSequence int64
	verdict := n.problem("")
	err = tx.QueryRow(ctx, "select verdict, reason, granted_token, last_token, last_sequence"+
		" from fence.outcome($1, $2, $3, $4::uuid)",
		[]any{verdict.Resource, verdict.Token, verdict.Sequence, n.lease.ID()},
		&verdict.Code, &verdict.Reason, &granted, &last, &lastSequence)
	if err != nil {
		return nil, err
	}
	verdict.GrantedToken, verdict.LastToken, verdict.LastSequence = &granted, &last, &lastSequence
	return verdict, nil
}

// admitted is the verdict of fence.outcome that is not the code of a rejection.
const admitted api.Code = "admitted"

// problem returns a problem with the number of the transaction.
func (n numbered) problem(code api.Code) *api.Problem {
	return &api.Problem{
		Type: "about:blank", Title: "Rejected by the database", Status: http.StatusPreconditionFailed, Code: code,
		Resource: n.resources[0], Token: &n.number.Token, Sequence: n.number.Sequence,
	}
}

func (n numbered) unavailable(outcome api.Outcome, detail string, cause error) error {
	problem := n.problem(api.CodeUnavailable)
	problem.Title, problem.Status = "The connection was lost", http.StatusServiceUnavailable
	problem.Detail, problem.Outcome = detail+": "+cause.Error(), outcome
	problem.Retryable = outcome == api.OutcomeNotApplied
	return &lockclient.Error{Op: opOn(problem.Resource), Problem: problem, Cause: cause}
}
