package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Codes of answers, besides the verdicts and the states of a lock.
const (
	CodeGranted  = "granted"
	CodeHeld     = "held by another"
	CodeRenewed  = "renewed"
	CodeReleased = "released"
	CodeBroken   = "broken"
	CodeLost     = "lost"
	CodeNotFound = "not found"
	CodeInvalid  = "invalid"
	CodeExternal = "external authority"
	CodeAdmitted = string(store.Admitted)
	CodeFence    = "fence"
	CodeRecord   = "record"
	CodeDone     = "done"
	CodeUnknown  = "unknown" // whether it happened

	CodeNotApplied = "not applied" // since the database could not be asked
)

// Told is an answer as a value that can be compared: the model's and the provider's must be the same.
type Told struct {
	Code   string
	Reason string // of lost and token_stale

	Token     int64
	ID        uuid.UUID
	Owner     string
	ExpiresAt int64 // microseconds; 0: unknown

	Version           int64
	Versions          string // of a transaction
	Created, Replayed bool
	Op                int // of a transaction that an operation's precondition refused: its place, from 1

	GrantedToken, LastToken, LastSequence int64 // the fence of a rejection, or that was asked for
	Open                                  bool
	Record                                Record
}

// String shows what the answer says and leaves out what it does not.
func (t Told) String() string {
	text := t.Code
	fields := reflect.ValueOf(t)
	for i := 1; i < fields.NumField(); i++ {
		if field := fields.Field(i); !field.IsZero() {
			text += fmt.Sprintf(" %s=%v", fields.Type().Field(i).Name, field.Interface())
		}
	}
	return text
}

// Same compares answers, of which one may not know when a lease expires.
func (t Told) Same(other Told) bool {
	if t.ExpiresAt == 0 || other.ExpiresAt == 0 {
		t.ExpiresAt, other.ExpiresAt = 0, 0
	}
	return t == other
}

// ToldLease is the answer to Acquire (CodeGranted), Renew (CodeRenewed) and Break (CodeBroken), which tells no lease_id.
func ToldLease(code string, lease store.Lease, err error) Told {
	if err != nil {
		return ToldError(err)
	}
	return Told{Code: code, Token: lease.Token, ID: lease.ID, Owner: lease.OwnerID, ExpiresAt: lease.ExpiresAt.UnixMicro()}
}

// ToldDone is the answer to what answers nothing but success, under the code.
func ToldDone(code string, err error) Told {
	if err != nil {
		return ToldError(err)
	}
	return Told{Code: code}
}

// ToldLock is the answer to Lock.
func ToldLock(lock store.Lock, err error) Told {
	switch {
	case err != nil:
		return ToldError(err)
	case lock.Holder == nil:
		return Told{Code: string(lock.State), Token: lock.Token}
	}
	return Told{
		Code: string(lock.State), Token: lock.Token, ID: lock.Holder.ID, Owner: lock.Holder.OwnerID,
		ExpiresAt: lock.Holder.ExpiresAt.UnixMicro(),
	}
}

// ToldWrite is the answer to one write.
func ToldWrite(result store.Result) Told {
	if result.Err != nil {
		return ToldError(result.Err)
	}
	return Told{Code: CodeAdmitted, Version: result.Version, Created: result.Created, Replayed: result.Replayed}
}

// ToldTransaction is the answer to Transact.
func ToldTransaction(result store.TransactionResult, err error) Told {
	if err != nil {
		return ToldError(err)
	}
	return Told{Code: CodeAdmitted, Versions: versionList(result.Versions), Replayed: result.Replayed}
}

// ToldFence is the answer to Fence.
func ToldFence(fence store.Fence, err error) Told {
	if err != nil {
		return ToldError(err)
	}
	return Told{
		Code: CodeFence, GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence,
	}
}

// ToldRecord is the answer to Record.
func ToldRecord(record store.Record, err error) Told {
	if err != nil {
		return ToldError(err)
	}
	stored := Record{
		Version: record.Version, Token: record.Token, Numbered: record.Sequence != nil,
		ContentType: record.ContentType, Value: string(record.Value),
	}
	if record.Sequence != nil {
		stored.Sequence = *record.Sequence
	}
	return Told{Code: CodeRecord, Version: record.Version, Record: stored}
}

// ToldError is what an error tells.
func ToldError(err error) Told {
	var held *store.HeldError
	var lost *store.LostError
	var rejected *store.RejectedError
	var unavailable *store.UnavailableError
	switch {
	case errors.As(err, &held):
		return Told{Code: CodeHeld, Owner: held.OwnerID, ExpiresAt: held.ExpiresAt.UnixMicro()}
	case errors.As(err, &lost):
		return Told{Code: CodeLost, Reason: lost.Reason}
	case errors.As(err, &rejected):
		return toldRejected(rejected)
	case errors.As(err, &unavailable):
		return toldUnavailable(unavailable)
	case errors.Is(err, store.ErrNotFound):
		return Told{Code: CodeNotFound}
	case errors.Is(err, store.ErrExternalAuthority):
		return Told{Code: CodeExternal}
	case errors.Is(err, store.ErrInvalid):
		return Told{Code: CodeInvalid}
	}
	return Told{Code: err.Error()}
}

func toldUnavailable(unavailable *store.UnavailableError) Told {
	if unavailable.Outcome == store.OutcomeUnknown {
		return Told{Code: CodeUnknown}
	}
	return Told{Code: CodeNotApplied}
}

// toldRejected keeps of the error what its verdict is about: the record's version, or else the fence.
func toldRejected(rejected *store.RejectedError) Told {
	told := Told{Code: string(rejected.Verdict), Reason: rejected.Reason}
	if rejected.Op != nil {
		told.Op = *rejected.Op + 1
	}
	if rejected.Verdict == store.VerdictVersionMismatch {
		told.Version = rejected.Version
		return told
	}
	told.GrantedToken, told.LastToken, told.LastSequence = rejected.GrantedToken, rejected.LastToken, rejected.LastSequence
	return told
}

func versionList(versions []int64) string { return strings.Trim(fmt.Sprint(versions), "[]") }
