package vault

import (
	"context"
	"fmt"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// The limits of a transaction keep it below the 1 MiB that a gateway takes by default: values grow by a third in
// base64, and each operation names the resource.
const (
	transactionEntriesMax = 128
	transactionBytesMax   = 512 << 10
)

// TransactionLimits returns how many operations a transaction may have, and how many bytes their keys and values.
func (b *Backend) TransactionLimits() (maxEntries, maxSize int) {
	return transactionEntriesMax, transactionBytesMax
}

// Transaction applies all changes at once, or none. It first reads the entries of its get operations.
func (b *Backend) Transaction(ctx context.Context, entries []*physical.TxnEntry) error {
	b.changes.Lock()
	defer b.changes.Unlock()
	lease, err := b.writer.lease(ctx)
	if err != nil {
		return err
	}
	if err := b.fill(ctx, entries); err != nil {
		return err
	}
	ops, err := b.operations(ctx, entries)
	if err != nil || len(ops) == 0 {
		return err
	}
	_, err = lease.Transaction(ctx, ops...)
	return refusal(err)
}

// fill reads the entries of get operations.
func (b *Backend) fill(ctx context.Context, entries []*physical.TxnEntry) error {
	for _, entry := range entries {
		if entry.Operation != physical.GetOperation {
			continue
		}
		found, err := b.Get(ctx, entry.Entry.Key)
		if err != nil {
			return err
		}
		if found != nil {
			entry.Entry.Value = found.Value
		}
	}
	return nil
}

// operations returns the last change of each entry: a transaction of fencegate changes a record once. It leaves out
// deletes of entries that do not exist, which fencegate would refuse.
func (b *Backend) operations(ctx context.Context, entries []*physical.TxnEntry) ([]api.Op, error) {
	last := map[string]int{}
	for i, entry := range entries {
		switch entry.Operation {
		case physical.PutOperation, physical.DeleteOperation:
			last[entry.Entry.Key] = i
		case physical.GetOperation:
		default:
			return nil, fmt.Errorf("a transaction can't have the operation %q", entry.Operation)
		}
	}
	var ops []api.Op
	for i, entry := range entries {
		if at, changed := last[entry.Entry.Key]; !changed || at != i {
			continue
		}
		key, err := recordKey(entry.Entry.Key)
		if err != nil {
			return nil, err
		}
		if entry.Operation == physical.PutOperation {
			ops = append(ops, lockclient.PutOp(key, entry.Entry.Value, ""))
			continue
		}
		found, err := b.Get(ctx, entry.Entry.Key)
		if err != nil {
			return nil, err
		}
		if found != nil {
			ops = append(ops, lockclient.DeleteOp(key))
		}
	}
	return ops, nil
}
