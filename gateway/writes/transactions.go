package writes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

func (e *Endpoints) transact(ctx context.Context, a endpoint.Action[store.Name, api.TransactionRequest]) (any, error) {
	transaction, err := transactionOf(a.Body)
	if err != nil {
		return nil, err
	}
	if err := mayTransact(a.W.Principal, transaction); err != nil {
		return nil, err
	}
	begun := time.Now()
	result, err := e.service.Transact(ctx, transaction)
	e.Count(a.W, a.R, metrics.SourceTransaction, time.Since(begun), err)
	if err != nil {
		return nil, endpoint.Redacted(a.W.Principal, err)
	}
	return transactionAnswer(a.Body, result), nil
}

func transactionAnswer(body api.TransactionRequest, result store.TransactionResult) api.TransactionResult {
	answer := api.TransactionResult{Results: make([]api.OpResult, len(body.Ops)), Replayed: result.Replayed}
	for i, op := range body.Ops {
		answer.Results[i] = api.OpResult{
			Op: op.Op, Resource: op.Resource, Key: op.Key, Version: result.Versions[i], Table: op.Table,
		}
		if op.Table != "" && !result.Replayed {
			answer.Results[i].Rows, answer.Results[i].Returning = &result.Tables[i].Rows, result.Tables[i].Returned
		}
	}
	return answer
}

func transactionOf(body api.TransactionRequest) (store.Transaction, error) {
	var transaction store.Transaction
	if len(body.Fences) > store.WriteTokensMax || len(body.Ops) > store.OperationsMax {
		return transaction, endpoint.Invalid("A transaction has 1 to %d fences and 1 to %d ops.",
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
		resource, err := endpoint.ParseName("resource", body.Ops[i].Resource)
		if err != nil {
			return transaction, atIndex("ops", i, err)
		}
		operation := store.ResourceOperation{Resource: resource}
		if body.Ops[i].Table != "" {
			operation.Table, err = tableOperationOf(&body.Ops[i])
		} else {
			operation.Operation, err = operationOf(&body.Ops[i])
		}
		if err != nil {
			return transaction, atIndex("ops", i, err)
		}
		transaction.Operations = append(transaction.Operations, operation)
	}
	return transaction, nil
}

// atIndex adds the element of a list to an error.
func atIndex(list string, index int, err error) error {
	element := fmt.Sprintf("%s[%d]: ", list, index)
	if answer, ok := errors.AsType[*api.Problem](err); ok {
		located := *answer
		located.Detail = element + answer.Detail
		return &located
	}
	return fmt.Errorf("%s%w", element, err)
}
