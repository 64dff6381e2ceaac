package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// caseError is a fault of a step within do.
type caseError struct{ error }

// raised is the error of a step that ends the work of do.
type raised struct{ error }

// fault compares a result with what is expected.
func (t *caseRun) fault(expect map[string]any, got result, err error) error {
	var inner caseError
	if errors.As(err, &inner) {
		return inner
	}
	if err != nil {
		got = describe(err)
		if expect["error"] == nil {
			return fmt.Errorf("it failed: %w", err)
		}
	} else if expect["error"] != nil && got["error"] == nil {
		return fmt.Errorf("it succeeded with %v, expected %v", got, expect)
	}
	text, err := json.Marshal(got)
	if err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	for name, want := range expect {
		if !t.matches(want, values[name]) {
			return fmt.Errorf("%s is %v, expected %v: %s", name, values[name], want, text)
		}
	}
	return nil
}

func (t *caseRun) matches(want, got any) bool {
	number, _ := got.(float64)
	switch want := want.(type) {
	case string:
		return got == strings.ReplaceAll(want, "{run}", t.run)
	case map[string]any:
		for comparison, bound := range want {
			if text, ok := bound.(string); ok && comparison == "has" {
				return strings.Contains(fmt.Sprint(got), strings.ReplaceAll(text, "{trust}", "RootCAs of WithTLS"))
			}
			limit, _ := bound.(float64)
			if lease, ok := bound.(string); ok {
				limit = float64(t.lease(lease).FencingToken())
			}
			ok := map[string]bool{
				"at_least": number >= limit, "at_most": number <= limit, "above": number > limit, "of": number == limit,
			}[comparison]
			if !ok {
				return false
			}
		}
		return got != nil
	}
	return got == want
}

// describe says in the words of cases.json what an error is.
func describe(err error) result {
	loss := lockclient.LossOf(err)
	got := result{
		"error": "", "outcome_unknown": errors.Is(err, lockclient.ErrOutcomeUnknown),
		"not_holder": errors.Is(err, lockclient.ErrNotHolder), "paused_ms": loss.Paused.Milliseconds(),
		"message": err.Error(), "retryable": false,
	}
	if loss.Holder != nil {
		got["holder"] = loss.Holder.OwnerID
	}
	problem := lockclient.ProblemOf(err)
	if problem != nil {
		got["error"], got["reason"], got["retryable"] = problem.Code, problem.Reason, problem.Retryable
		if problem.Version != nil {
			got["version"] = *problem.Version
		}
		if problem.Holder != nil {
			got["holder"] = problem.Holder.OwnerID
		}
	}
	switch {
	case errors.Is(err, errWork):
		got["error"] = "work"
	case errors.Is(err, lockclient.ErrLeaseLost):
		got["error"] = api.CodeLeaseLost
	case errors.Is(err, lockclient.ErrLeaseReleased):
		got["error"] = "released"
	case errors.Is(err, lockclient.ErrForeignAnswer) && !errors.Is(err, lockclient.ErrUnavailable):
		got["error"] = "foreign_answer"
	case errors.Is(err, context.Canceled):
		got["error"] = "canceled"
	case problem == nil:
		got["error"] = err.Error()
	}
	return got
}
