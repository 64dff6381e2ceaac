package gateway

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
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
	g.judged(r, sourceTransaction, err)
	if err != nil {
		return err
	}
	g.metrics.writeTimes.transaction.Observe(time.Since(begun).Seconds())
	answer := api.TransactionResult{Results: make([]api.OpResult, len(body.Ops)), Replayed: result.Replayed}
	for i, op := range body.Ops {
		answer.Results[i] = api.OpResult{Op: op.Op, Resource: op.Resource, Key: op.Key, Version: result.Versions[i]}
	}
	return answerJSON(w, http.StatusOK, answer)
}

func transactionOf(body api.TransactionRequest) (store.Transaction, error) {
	var transaction store.Transaction
	if len(body.Fences) > store.WriteTokensMax || len(body.Ops) > store.OperationsMax {
		return transaction, invalid("A transaction has 1 to %d fences and 1 to %d ops.", store.WriteTokensMax, store.OperationsMax)
	}
	for i, fence := range body.Fences {
		claim, err := claimOf(fence)
		if err != nil {
			return transaction, at("fences", i, err)
		}
		transaction.Tokens = append(transaction.Tokens, claim)
	}
	for i, op := range body.Ops {
		operation, err := operationOf(op)
		if err != nil {
			return transaction, at("ops", i, err)
		}
		transaction.Operations = append(transaction.Operations, operation)
	}
	return transaction, nil
}

func claimOf(fence api.WriteToken) (store.WriteToken, error) {
	resource, err := parseName("resource", fence.Resource)
	if err != nil {
		return store.WriteToken{}, err
	}
	claim := store.WriteToken{Resource: resource, Sequence: fence.Sequence}
	if fence.FencingToken != nil {
		if *fence.FencingToken < 1 || *fence.FencingToken > api.MaxToken {
			return claim, problem(http.StatusBadRequest, api.CodeInvalidToken, "fencing_token must be 1 to 2^53-1.")
		}
		claim.Token = *fence.FencingToken
	}
	if fence.Sequence != nil && (*fence.Sequence < 0 || *fence.Sequence > api.MaxToken) {
		return claim, problem(http.StatusBadRequest, api.CodeInvalidToken, "sequence must be 0 to 2^53-1.")
	}
	if fence.LeaseID != nil {
		id, err := parseLeaseID("lease_id", *fence.LeaseID)
		if err != nil {
			return claim, err
		}
		claim.LeaseID = &id
	}
	return claim, nil
}

func operationOf(op api.Op) (store.ResourceOperation, error) {
	operation := store.ResourceOperation{Operation: store.Operation{Kind: store.Kind(op.Op), Expect: op.IfVersion}}
	var err error
	if operation.Resource, err = parseName("resource", op.Resource); err != nil {
		return operation, err
	}
	if operation.Key, err = parseName("key", op.Key); err != nil {
		return operation, err
	}
	if op.IfVersion != nil && *op.IfVersion < 0 {
		return operation, invalid("if_version is %d; it is a version, or 0: there must be no record.", *op.IfVersion)
	}
	switch operation.Kind {
	case store.Put:
		operation.Value, operation.ContentType, err = valueOf(op)
		return operation, err
	case store.Delete:
		if op.Value != nil || op.ValueBase64 != nil || op.ContentType != "" {
			return operation, invalid("a delete has no value.")
		}
		return operation, nil
	}
	return operation, invalid("op is %q; it must be put or delete.", clip(op.Op))
}

func valueOf(op api.Op) (value []byte, contentType string, err error) {
	switch {
	case (op.Value != nil) == (op.ValueBase64 != nil):
		return nil, "", invalid("a put has either value (JSON) or value_base64 (any bytes).")
	case op.Value != nil && op.ContentType != "":
		return nil, "", invalid("content_type goes with value_base64; a value is application/json.")
	case op.Value != nil:
		return op.Value, "application/json", nil
	}
	value, err = base64.StdEncoding.DecodeString(*op.ValueBase64)
	if err != nil {
		return nil, "", invalid("value_base64 is not base64.")
	}
	contentType = cmp.Or(op.ContentType, "application/octet-stream")
	if isJSON(contentType) && !validJSON(value) {
		return nil, "", invalid("value_base64 is not JSON, though its content_type is %s.", clip(contentType))
	}
	return value, contentType, nil
}

// at says in which element of a list an error is.
func at(list string, index int, err error) error {
	place := fmt.Sprintf("%s[%d]: ", list, index)
	var answer *api.Problem
	if errors.As(err, &answer) {
		placed := *answer
		placed.Detail = place + answer.Detail
		return &placed
	}
	return fmt.Errorf("%s%w", place, err)
}
