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

	CodeNotApplied  = "not applied" // since the database could not be asked
	CodeSessionLost = "session lost"
)

// Anybody is the owner where it is not known who must be told.
const Anybody = "*"

// Told is an answer as a value that can be compared: the model's and the provider's must be the same.
type Told struct {
	Code   string
	Reason string // of lost, session lost and token_stale

	Token     int64
	ID        uuid.UUID
	Owner     string
	ExpiresAt int64  // microseconds; 0: unknown
	Others    string // who holds the lock besides the owner
	Leases    int64  // of a session

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
	if t.Owner == Anybody || other.Owner == Anybody {
		t.Owner, other.Owner = "", ""
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
	case len(lock.Holders) == 0:
		return Told{Code: string(lock.State), Token: lock.Token}
	}
	holder := lock.Holders[0]
	told := Told{
		Code: string(lock.State), Token: lock.Token, ID: holder.ID, Owner: holder.OwnerID,
		ExpiresAt: holder.ExpiresAt.UnixMicro(),
	}
	for _, other := range lock.Holders[1:] {
		told.Others += beside(other.OwnerID, other.Token)
	}
	return told
}

func beside(owner string, token int64) string { return fmt.Sprintf("%s with %d;", owner, token) }

// ToldSession is the answer to KeepAlive (CodeRenewed).
func ToldSession(code string, session store.Session, err error) Told {
	if err != nil {
		return ToldError(err)
	}
	return Told{Code: code, Owner: session.OwnerID, ExpiresAt: session.ExpiresAt.UnixMicro()}
}

// ToldSessionState is the answer to Session.
func ToldSessionState(session store.Session, leases int64, err error) Told {
	told := ToldSession(string(session.State), session, err)
	told.Leases = leases
	return told
}

// ToldEnded is the answer to EndSession.
func ToldEnded(leases int64, err error) Told {
	told := ToldDone(CodeReleased, err)
	if err == nil {
		told.Leases = leases
	}
	return told
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
	case errors.As(err, &lost) && lost.Lock == "":
		return Told{Code: CodeSessionLost, Reason: lost.Reason}
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
