package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) transact(w http.ResponseWriter, r *http.Request) error {
	var body api.TransactionRequest
	if err := g.readJSON(w, r, &body); err != nil {
		return err
	}
	transaction, err := transactionOf(body)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	begun := time.Now()
	result, err := g.backend.Transact(ctx, transaction)
	g.countWrite(r, metrics.SourceTransaction, time.Since(begun), err)
	if err != nil {
		return err
	}
	answer := api.TransactionResult{Results: make([]api.OpResult, len(body.Ops)), Replayed: result.Replayed}
	for i, op := range body.Ops {
		answer.Results[i] = api.OpResult{
			Op: op.Op, Resource: op.Resource, Key: op.Key, Version: result.Versions[i],
		}
	}
	return answerJSON(w, http.StatusOK, answer)
}

func transactionOf(body api.TransactionRequest) (store.Transaction, error) {
	var transaction store.Transaction
	if len(body.Fences) > store.WriteTokensMax || len(body.Ops) > store.OperationsMax {
		return transaction, invalid("A transaction has 1 to %d fences and 1 to %d ops.",
			store.WriteTokensMax, store.OperationsMax)
	}
	for i, fence := range body.Fences {
		token, err := writeTokenOf(fence)
		if err != nil {
			return transaction, atIndex("fences", i, err)
		}
		transaction.Tokens = append(transaction.Tokens, token)
	}
	for i := range body.Ops {
		resource, err := parseName("resource", body.Ops[i].Resource)
		if err != nil {
			return transaction, atIndex("ops", i, err)
		}
		operation, err := operationOf(&body.Ops[i])
		if err != nil {
			return transaction, atIndex("ops", i, err)
		}
		transaction.Operations = append(transaction.Operations, store.ResourceOperation{
			Resource: resource, Operation: operation,
		})
	}
	return transaction, nil
}

// atIndex adds to an error in which element of a list it is.
func atIndex(list string, index int, err error) error {
	element := fmt.Sprintf("%s[%d]: ", list, index)
	var answer *api.Problem
	if errors.As(err, &answer) {
		located := *answer
		located.Detail = element + answer.Detail
		return &located
	}
	return fmt.Errorf("%s%w", element, err)
}
