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

	CodeNotApplied  = "not applied" // the database could not be reached
	CodeSessionLost = "session lost"
)

// Anybody is the owner if any of several may be in the answer.
const Anybody = "*"

// Answer is an answer as a value that can be compared: the model's and the provider's must be the same.
type Answer struct {
	Code   string
	Reason string // of lost, session lost and token_stale

	Token     int64
	ID        uuid.UUID
	Owner     string
	ExpiresAt int64  // microseconds; 0: unknown
	Others    string // the holders besides the owner
	Leases    int64  // of a session

	Version           int64
	Versions          string // of a transaction
	Created, Replayed bool
	Op                int // of a transaction that an operation's precondition refused: its index, from 1

	GrantedToken, LastToken, LastSequence int64 // of a rejection's fence, or of CodeFence
	Open                                  bool
	Record                                Record
}

// String shows the fields that are set.
func (t Answer) String() string {
	text := t.Code
	fields := reflect.ValueOf(t)
	for i := 1; i < fields.NumField(); i++ {
		if field := fields.Field(i); !field.IsZero() {
			text += fmt.Sprintf(" %s=%v", fields.Type().Field(i).Name, field.Interface())
		}
	}
	return text
}

// Same compares answers. One of them may not know when a lease expires.
func (t Answer) Same(other Answer) bool {
	if t.ExpiresAt == 0 || other.ExpiresAt == 0 {
		t.ExpiresAt, other.ExpiresAt = 0, 0
	}
	if t.Owner == Anybody || other.Owner == Anybody {
		t.Owner, other.Owner = "", ""
	}
	return t == other
}

// answer is the answer to a call that returned an error, or else the one that is given.
func answer(err error, given Answer) Answer {
	if err != nil {
		return ErrorAnswer(err)
	}
	return given
}

// LeaseAnswer is the answer to Acquire (CodeGranted), Renew (CodeRenewed) and Break (CodeBroken), which has no
// lease_id.
func LeaseAnswer(code string, lease store.Lease, err error) Answer {
	return answer(err, Answer{Code: code, Token: lease.Token, ID: lease.ID, Owner: lease.OwnerID,
		ExpiresAt: lease.ExpiresAt.UnixMicro()})
}

// DoneAnswer is the answer to what answers nothing but success, under the code.
func DoneAnswer(code string, err error) Answer { return answer(err, Answer{Code: code}) }

// LockAnswer is the answer to Lock.
func LockAnswer(lock store.Lock, err error) Answer {
	switch {
	case err != nil:
		return ErrorAnswer(err)
	case len(lock.Holders) == 0:
		return Answer{Code: string(lock.State), Token: lock.Token}
	}
	holder := lock.Holders[0]
	held := Answer{
		Code: string(lock.State), Token: lock.Token, ID: holder.ID, Owner: holder.OwnerID,
		ExpiresAt: holder.ExpiresAt.UnixMicro(),
	}
	for _, other := range lock.Holders[1:] {
		held.Others += beside(other.OwnerID, other.Token)
	}
	return held
}

func beside(owner string, token int64) string { return fmt.Sprintf("%s with %d;", owner, token) }

// SessionAnswer is the answer to KeepAlive (CodeRenewed).
func SessionAnswer(code string, session store.Session, err error) Answer {
	return answer(err, Answer{Code: code, Owner: session.OwnerID, ExpiresAt: session.ExpiresAt.UnixMicro()})
}

// SessionStateAnswer is the answer to Session.
func SessionStateAnswer(session store.Session, leases int64, err error) Answer {
	shown := SessionAnswer(string(session.State), session, err)
	shown.Leases = leases
	return shown
}

// EndedAnswer is the answer to EndSession.
func EndedAnswer(leases int64, err error) Answer {
	return answer(err, Answer{Code: CodeReleased, Leases: leases})
}

// WriteAnswer is the answer to one write.
func WriteAnswer(result store.Result) Answer {
	return answer(result.Err,
		Answer{Code: CodeAdmitted, Version: result.Version, Created: result.Created, Replayed: result.Replayed})
}

// TransactionAnswer is the answer to Transact.
func TransactionAnswer(result store.TransactionResult, err error) Answer {
	return answer(err, Answer{Code: CodeAdmitted, Versions: versionList(result.Versions), Replayed: result.Replayed})
}

// FenceAnswer is the answer to Fence.
func FenceAnswer(fence store.Fence, err error) Answer {
	return answer(err, Answer{
		Code: CodeFence, GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence,
	})
}

// RecordAnswer is the answer to Record.
func RecordAnswer(record store.Record, err error) Answer {
	if err != nil {
		return ErrorAnswer(err)
	}
	stored := Record{
		Version: record.Version, Token: record.Token, Numbered: record.Sequence != nil,
		ContentType: record.ContentType, Value: string(record.Value),
	}
	if record.Sequence != nil {
		stored.Sequence = *record.Sequence
	}
	return Answer{Code: CodeRecord, Version: record.Version, Record: stored}
}

// ErrorAnswer is the answer of an error.
func ErrorAnswer(err error) Answer {
	var held *store.HeldError
	var lost *store.LostError
	var rejected *store.RejectedError
	var unavailable *store.UnavailableError
	switch {
	case errors.As(err, &held):
		return Answer{Code: CodeHeld, Owner: held.OwnerID, ExpiresAt: held.ExpiresAt.UnixMicro()}
	case errors.As(err, &lost) && lost.Lock == "":
		return Answer{Code: CodeSessionLost, Reason: lost.Reason}
	case errors.As(err, &lost):
		return Answer{Code: CodeLost, Reason: lost.Reason}
	case errors.As(err, &rejected):
		return rejectionAnswer(rejected)
	case errors.As(err, &unavailable) && unavailable.Outcome == store.OutcomeUnknown:
		return Answer{Code: CodeUnknown}
	case errors.As(err, &unavailable):
		return Answer{Code: CodeNotApplied}
	case errors.Is(err, store.ErrNotFound):
		return Answer{Code: CodeNotFound}
	case errors.Is(err, store.ErrExternalAuthority):
		return Answer{Code: CodeExternal}
	case errors.Is(err, store.ErrInvalid):
		return Answer{Code: CodeInvalid}
	}
	return Answer{Code: err.Error()}
}

// rejectionAnswer keeps of the error what its verdict is about: the record's version, or else the fence.
func rejectionAnswer(rejected *store.RejectedError) Answer {
	kept := Answer{Code: string(rejected.Verdict), Reason: rejected.Reason}
	if rejected.Op != nil {
		kept.Op = *rejected.Op + 1
	}
	if rejected.Verdict == store.VerdictVersionMismatch {
		kept.Version = rejected.Version
		return kept
	}
	kept.GrantedToken, kept.LastToken, kept.LastSequence = rejected.GrantedToken, rejected.LastToken,
		rejected.LastSequence
	return kept
}

func versionList(versions []int64) string { return strings.Trim(fmt.Sprint(versions), "[]") }
