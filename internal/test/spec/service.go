package spec

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Service is what operations are performed on: a store, or an engine.
type Service interface {
	Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error)
	Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error)
	Release(ctx context.Context, ref store.LeaseRef) error
	Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error)
	Lock(ctx context.Context, name store.Name) (store.Lock, error)

	CreateSession(ctx context.Context, request store.SessionRequest) (store.Session, error)
	KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error)
	EndSession(ctx context.Context, id uuid.UUID) (released int64, err error)
	Session(ctx context.Context, id uuid.UUID) (session store.Session, leases int64, err error)

	PutPolicy(ctx context.Context, policy store.Policy) error
	DeletePolicy(ctx context.Context, prefix string) error

	Write(ctx context.Context, writes []store.Write) ([]store.Result, error)
	Transact(ctx context.Context, transaction store.Transaction) (store.TransactionResult, error)
	Fence(ctx context.Context, resource store.Name) (store.Fence, error)
	Record(ctx context.Context, resource, key store.Name) (store.Record, error)
}

// Performer is a Service that performs some operations otherwise.
type Performer interface {
	Performs(kind Kind) bool
	Perform(ctx context.Context, op Op) (Answer, Choice)
}

// Perform makes the call of an operation, and returns its answer with what the provider chose.
func Perform(ctx context.Context, on Service, op Op) (Answer, Choice) {
	if on, ok := on.(Performer); ok && on.Performs(op.Kind) {
		return on.Perform(ctx, op)
	}
	switch op.Kind {
	case Acquire:
		lease, err := on.Acquire(ctx, op.AcquireRequest())
		return leaseAnswer(CodeGranted, lease, err)
	case Renew:
		lease, err := on.Renew(ctx, op.ref(), op.TTL)
		return leaseAnswer(CodeRenewed, lease, err)
	case Break:
		lease, err := on.Break(ctx, op.Name, cmp.Or(op.Reason, "a test"))
		return leaseAnswer(CodeBroken, lease, err)
	case OpenSession:
		session, err := on.CreateSession(ctx, store.SessionRequest{OwnerID: op.Owner, Principal: op.Principal,
			TTL: op.TTL, Metadata: op.metadata()})
		_, chosen := sessionAnswer(CodeDone, session, 0, err)
		return answerOf(err, Answer{Code: CodeDone}), chosen
	case KeepAlive:
		session, err := on.KeepAlive(ctx, op.Session)
		return sessionAnswer(CodeRenewed, session, 0, err)
	case ReadSession:
		session, leases, err := on.Session(ctx, op.Session)
		return sessionAnswer(string(session.State), session, leases, err)
	}
	return perform(ctx, on, op), Choice{}
}

// perform makes the call of an operation in which a provider chooses nothing.
func perform(ctx context.Context, on Service, op Op) Answer {
	switch op.Kind {
	case Release:
		return answerOf(on.Release(ctx, op.ref()), Answer{Code: CodeReleased})
	case EndSession:
		leases, err := on.EndSession(ctx, op.Session)
		return answerOf(err, Answer{Code: CodeReleased, Leases: leases})
	case Put, Delete:
		return answerOfWrite(commit(ctx, on, op.Write()))
	case Set:
		return performSet(ctx, on, op.Parts)
	case Transact:
		result, err := on.Transact(ctx, op.transaction())
		return answerOf(err, Answer{Code: CodeAdmitted, Versions: versionList(result.Versions), Replayed: result.Replayed})
	case SetPolicy:
		op.Policy.Prefix = string(op.Name)
		return answerOf(on.PutPolicy(ctx, op.Policy), Answer{Code: CodeDone})
	case DeletePolicy:
		err := on.DeletePolicy(ctx, string(op.Name))
		if errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		return answerOf(err, Answer{Code: CodeDone})
	case ReadLock:
		lock, err := on.Lock(ctx, op.Name)
		return answerOf(err, answerOfLock(lock))
	case ReadFence:
		fence, err := on.Fence(ctx, op.Name)
		return answerOf(err, Answer{Code: CodeFence, GrantedToken: fence.GrantedToken, Open: fence.Open,
			LastToken: fence.LastToken, LastSequence: fence.LastSequence, Policy: policyText(fence.Policy)})
	case ReadRecord:
		record, err := on.Record(ctx, op.Name, op.Key)
		return answerOf(err, answerOfRecord(record))
	}
	return Answer{Code: fmt.Sprintf("no call does %q", op.Kind)}
}

func performSet(ctx context.Context, on Service, parts []Op) Answer {
	writes := make([]store.Write, len(parts))
	for i, part := range parts {
		writes[i] = part.Write()
	}
	results, err := on.Write(ctx, writes)
	answers := make([]Answer, len(results))
	for i, result := range results {
		answers[i] = AnswerOfResult(result)
	}
	return answerOf(err, AnswerOfSet(answers))
}

// commit sends one write, through a group commit if there is one.
func commit(ctx context.Context, on Service, write store.Write) (store.Result, error) {
	type committer interface {
		Commit(ctx context.Context, write store.Write) (store.Result, error)
	}
	if on, ok := on.(committer); ok {
		return on.Commit(ctx, write)
	}
	results, err := on.Write(ctx, []store.Write{write})
	if err != nil {
		return store.Result{}, err
	}
	return results[0], nil
}

// AcquireRequest is the acquire as a request.
func (o Op) AcquireRequest() store.AcquireRequest {
	return store.AcquireRequest{Lock: o.Name, OwnerID: o.Owner, Principal: o.Principal, RequestID: o.Request, Mode: o.Mode,
		Scope: o.Scope, TTL: o.TTL, Wait: o.Wait, SessionID: o.Session, Metadata: o.metadata(), NewestToken: o.NewestToken}
}

func (o Op) metadata() json.RawMessage {
	if o.Metadata == "" {
		return nil
	}
	return json.RawMessage(o.Metadata)
}

func (o Op) ref() store.LeaseRef {
	return store.LeaseRef{Lock: o.Name, OwnerID: o.Owner, ID: o.LeaseID, Token: o.Token}
}

// Write is the put or delete as a write.
func (o Op) Write() store.Write {
	return store.Write{WriteToken: o.writeToken(), Operation: o.operation()}
}

func (o Op) writeToken() store.WriteToken {
	token := store.WriteToken{Resource: o.Name, Token: o.Token, Sequence: o.Sequence}
	if o.LeaseID != uuid.Nil {
		token.LeaseID = &o.LeaseID
	}
	return token
}

func (o Op) operation() store.Operation {
	op := store.Operation{Kind: store.Kind(o.Kind), Key: o.Key, Expect: o.Expect}
	if o.Kind == Put {
		op.Value, op.ContentType = []byte(o.Value), o.Type
	}
	return op
}

func (o Op) transaction() (transaction store.Transaction) {
	for _, part := range o.Parts {
		if part.Kind == Token {
			transaction.Tokens = append(transaction.Tokens, part.writeToken())
		} else {
			transaction.Operations = append(transaction.Operations,
				store.ResourceOperation{Resource: part.Name, Operation: part.operation()})
		}
	}
	return transaction
}

// answerOf is the answer to a call that returned an error, or else the one that is given.
func answerOf(err error, given Answer) Answer {
	if err != nil {
		return AnswerOfError(err)
	}
	return given
}

func leaseAnswer(code string, lease store.Lease, err error) (Answer, Choice) {
	if err != nil {
		return AnswerOfError(err), Choice{}
	}
	return Answer{Code: code, Token: lease.Token, ID: lease.ID, Owner: lease.OwnerID, Principal: lease.Principal,
			Metadata: string(lease.Metadata), TTL: lease.TTL, ExpiresAt: micros(lease.ExpiresAt),
			Lease: kindOf(lease.Mode, lease.Scope)},
		Choice{Token: lease.Token, ID: lease.ID, GrantedAt: micros(lease.GrantedAt), Until: micros(lease.ExpiresAt)}
}

func sessionAnswer(code string, session store.Session, leases int64, err error) (Answer, Choice) {
	if err != nil {
		return AnswerOfError(err), Choice{}
	}
	return Answer{Code: code, Owner: session.OwnerID, Principal: session.Principal, TTL: session.TTL,
			ExpiresAt: micros(session.ExpiresAt), Leases: leases},
		Choice{ID: session.ID, GrantedAt: micros(session.CreatedAt), Until: micros(session.ExpiresAt)}
}

// micros is a time in microseconds; 0 for none.
func micros(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

func answerOfWrite(result store.Result, err error) Answer {
	if err == nil {
		err = result.Err
	}
	return answerOf(err,
		Answer{Code: CodeAdmitted, Version: result.Version, Created: result.Created, Replayed: result.Replayed})
}

func answerOfLock(lock store.Lock) Answer {
	if len(lock.Holders) == 0 {
		return Answer{Code: string(lock.State), Token: lock.Token}
	}
	holder := lock.Holders[0]
	held := Answer{
		Code: string(lock.State), Token: lock.Token, Owner: holder.OwnerID, Principal: holder.Principal,
		ExpiresAt: micros(holder.ExpiresAt),
		ID:        cmp.Or(holder.ID, holder.SessionID), // secrets, which a lock must not show
	}
	for _, other := range lock.Holders[1:] {
		held.Others += beside(other.OwnerID, other.Token)
	}
	return held
}

func answerOfRecord(record store.Record) Answer {
	stored := Record{
		Version: record.Version, Token: record.Token, Numbered: record.Sequence != nil,
		ContentType: record.ContentType, Value: string(record.Value),
	}
	if record.Sequence != nil {
		stored.Sequence = *record.Sequence
	}
	return Answer{Code: CodeRecord, Version: record.Version, Record: stored}
}

// AnswerOfError is the answer that an error is.
func AnswerOfError(err error) Answer {
	var held *store.HeldError
	var lost *store.LostError
	var rejected *store.RejectedError
	var unavailable *store.UnavailableError
	var deadlock *store.DeadlockError
	switch {
	case errors.As(err, &held):
		return Answer{Code: CodeHeld, Owner: held.OwnerID, Principal: held.Principal, ExpiresAt: micros(held.ExpiresAt)}
	case errors.As(err, &deadlock):
		return Answer{Code: CodeDeadlock}
	case errors.As(err, &lost) && lost.Lock == "":
		return Answer{Code: CodeSessionLost, Reason: lost.Reason}
	case errors.As(err, &lost):
		return Answer{Code: CodeLost, Reason: lost.Reason}
	case errors.Is(err, store.ErrDatabaseWentBack):
		return Answer{Code: CodeWentBack}
	case errors.Is(err, store.ErrUnsupported):
		return Answer{Code: CodeUnsupported}
	case errors.As(err, &rejected):
		return answerOfRejection(rejected)
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
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Answer{Code: CodeLeft}
	}
	return Answer{Code: err.Error()}
}

// answerOfRejection keeps of the error what its verdict is about: the record's version, or else the fence.
func answerOfRejection(rejected *store.RejectedError) Answer {
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
	return kept.Told()
}

// AnswerOfResult is the answer to one write of several.
func AnswerOfResult(result store.Result) Answer { return answerOfWrite(result, nil) }
