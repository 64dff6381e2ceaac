package writes

import (
	"bytes"
	"errors"
	"reflect"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// bulkDocument is a line: a write, or a transaction.
type bulkDocument struct {
	api.BulkWrite
	api.TransactionRequest
}

// bulkTransaction is a line that is a transaction.
type bulkTransaction struct {
	body        api.TransactionRequest
	transaction store.Transaction
}

func (l *bulkLine) parseTransaction(line bulkDocument) error {
	if !reflect.ValueOf(line.BulkWrite).IsZero() {
		return endpoint.Invalid("A line is a write or a transaction, and a transaction has only fences and ops.")
	}
	transaction, err := transactionOf(line.TransactionRequest)
	if err == nil {
		l.transaction = &bulkTransaction{line.TransactionRequest, transaction}
	}
	return err
}

// transact decides a transaction. All lines before it have been decided, and none after it is taken meanwhile.
func (s *bulkStream) transact(line *bulkLine) {
	result, err := s.endpoints.service.Transact(s.endpoints.Work(s.request), line.transaction.transaction)
	if err == nil {
		var answer bytes.Buffer
		endpoint.EncodeJSON(&answer, transactionAnswer(line.transaction.body, result))
		line.answer = answer.Bytes()
		if line.answer == nil {
			err = errors.New("the rows that the transaction returned can't be encoded")
		}
	}
	line.decide(store.Result{}, err)
}

// awaitDecided waits until the line that was taken last is the only one that is not decided.
func (w *bulkWindow) awaitDecided() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.undecided > 1 {
		w.room.Wait()
	}
}
