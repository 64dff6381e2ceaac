package load

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Service is a gateway as a service of operations. It can neither demand that a record exists, whatever its version, nor
// send two calls at once. Times have milliseconds.
type Service struct {
	api    *lockclient.API
	admin  *admin.Client
	status *lastStatus // nil: whether a record was created is not known
	failed error       // the last call, as the client has it
}

// NewService returns the gateway at a URL as a service, and a function that closes its connections.
func NewService(url string) (service *Service, done func(), err error) {
	status := &lastStatus{}
	client, err := lockclient.New(url, lockclient.WithHTTPClient(&http.Client{Transport: status}))
	if err != nil {
		return nil, nil, err
	}
	done = func() {
		client.Close()
		status.CloseIdleConnections()
	}
	return &Service{api: client.API(), admin: admin.New(client), status: status}, done, nil
}

// Perform sends an operation to a gateway. It returns the answer, what the provider chose, and the error that it was.
func Perform(ctx context.Context, to *lockclient.API, op spec.Op) (spec.Answer, spec.Choice, error) {
	service := &Service{api: to}
	answer, chosen := spec.Perform(ctx, service, op)
	return answer, chosen, service.failed
}

// lastStatus remembers the status of the last answer, which says whether a record was created.
type lastStatus struct {
	http.Transport
	code int
}

// RoundTrip sends a request.
func (l *lastStatus) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.Transport.RoundTrip(request)
	if err == nil {
		l.code = response.StatusCode
	}
	return response, err
}

func (l *lastStatus) created() bool { return l != nil && l.code == http.StatusCreated }

// optional is nil for the zero value.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// idText is the text of an id; "" for none.
func idText(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// Acquire acquires a lock.
func (s *Service) Acquire(ctx context.Context, r store.AcquireRequest) (store.Lease, error) {
	got, err := s.api.Acquire(ctx, string(r.Lock), api.AcquireRequest{OwnerID: r.OwnerID, TTLMS: optional(r.TTL.Milliseconds()),
		Mode: string(r.Mode), Scope: string(r.Scope), WaitMS: r.Wait.Milliseconds(), SessionID: optional(idText(r.SessionID)),
		RequestID: optional(r.RequestID), NewestToken: r.NewestToken, Metadata: r.Metadata})
	return leaseOf(got), s.errorOf(err, r.Lock)
}

// Renew renews a lease.
func (s *Service) Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	got, err := s.api.Renew(ctx, string(ref.Lock), api.RenewRequest{OwnerID: ref.OwnerID, LeaseID: ref.ID.String(),
		FencingToken: ref.Token, TTLMS: optional(ttl.Milliseconds())})
	return leaseOf(got), s.errorOf(err, ref.Lock)
}

func leaseOf(got api.Lease) store.Lease {
	id, _ := uuid.Parse(got.LeaseID)
	return store.Lease{Lock: store.Name(got.Lock), OwnerID: got.OwnerID, ID: id, Token: got.FencingToken,
		Mode: store.Mode(got.Mode), Scope: store.Scope(got.Scope), TTL: time.Duration(got.TTLMS) * time.Millisecond,
		GrantedAt: got.GrantedAt.Time, ExpiresAt: got.ExpiresAt.Time, Metadata: got.Metadata}
}

// Release releases a lease.
func (s *Service) Release(ctx context.Context, ref store.LeaseRef) error {
	err := s.api.Release(ctx, string(ref.Lock), api.ReleaseRequest{OwnerID: ref.OwnerID, LeaseID: ref.ID.String(),
		FencingToken: ref.Token})
	return s.errorOf(err, ref.Lock)
}

// Break breaks a lock. What it does not return of the lease, it leaves unknown.
func (s *Service) Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error) {
	got, err := s.admin.Break(ctx, string(lock), api.BreakRequest{Reason: reason})
	return store.Lease{Lock: lock, OwnerID: got.OwnerID, Token: got.FencingToken}, s.errorOf(err, lock)
}

// Lock returns a lock.
func (s *Service) Lock(ctx context.Context, name store.Name) (store.Lock, error) {
	got, err := s.api.Lock(ctx, string(name))
	lock := store.Lock{Lock: name, State: store.LockState(got.State), Token: got.FencingToken}
	for _, holder := range got.Holders {
		lock.Holders = append(lock.Holders, store.Lease{OwnerID: holder.OwnerID, Token: holder.FencingToken,
			ExpiresAt: holder.ExpiresAt.Time, Principal: holder.Principal})
	}
	return lock, s.errorOf(err, name)
}

// CreateSession opens a session.
func (s *Service) CreateSession(ctx context.Context, r store.SessionRequest) (store.Session, error) {
	got, err := s.api.CreateSession(ctx, api.SessionRequest{OwnerID: r.OwnerID, TTLMS: optional(r.TTL.Milliseconds()),
		Metadata: r.Metadata})
	return sessionOf(got), s.errorOf(err, "")
}

// KeepAlive keeps a session alive.
func (s *Service) KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error) {
	got, err := s.api.KeepSessionAlive(ctx, id.String())
	return sessionOf(got), s.errorOf(err, "")
}

// EndSession ends a session.
func (s *Service) EndSession(ctx context.Context, id uuid.UUID) (int64, error) {
	got, err := s.api.EndSession(ctx, id.String())
	return got.Released, s.errorOf(err, "")
}

// Session returns a session.
func (s *Service) Session(ctx context.Context, id uuid.UUID) (store.Session, int64, error) {
	got, err := s.api.Session(ctx, id.String())
	leases := int64(0)
	if got.Leases != nil {
		leases = *got.Leases
	}
	return sessionOf(got), leases, s.errorOf(err, "")
}

func sessionOf(got api.Session) store.Session {
	id, _ := uuid.Parse(got.SessionID)
	return store.Session{ID: id, OwnerID: got.OwnerID, TTL: time.Duration(got.TTLMS) * time.Millisecond,
		CreatedAt: got.CreatedAt.Time, ExpiresAt: got.ExpiresAt.Time, State: store.SessionState(got.State), Metadata: got.Metadata}
}

// PutPolicy sets a policy.
func (s *Service) PutPolicy(ctx context.Context, p store.Policy) error {
	_, err := s.admin.PutPolicy(ctx, p.Prefix, api.PolicyRequest{Rule: string(p.Rule), Authority: string(p.Authority),
		RequireLeaseID: p.RequireLeaseID, RequireLiveLease: p.RequireLiveLease, MaxHoldMS: optional(p.MaxHold.Milliseconds()),
		RequirePrincipalOwner: p.RequirePrincipalOwner})
	return s.errorOf(err, "")
}

// DeletePolicy removes a policy.
func (s *Service) DeletePolicy(ctx context.Context, prefix string) error {
	return s.errorOf(s.admin.DeletePolicy(ctx, prefix), "")
}

// Fence returns a fence.
func (s *Service) Fence(ctx context.Context, resource store.Name) (store.Fence, error) {
	got, err := s.admin.Fence(ctx, string(resource))
	p := got.Policy
	return store.Fence{GrantedToken: got.GrantedToken, Open: got.Open, LastToken: got.LastToken, LastSequence: got.LastSequence,
		Policy: store.Policy{Prefix: p.Prefix, Rule: store.Rule(p.Rule), Authority: store.Authority(p.Authority),
			RequireLeaseID: p.RequireLeaseID, RequireLiveLease: p.RequireLiveLease,
			MaxHold:               time.Duration(p.MaxHoldMS) * time.Millisecond,
			RequirePrincipalOwner: p.RequirePrincipalOwner}}, s.errorOf(err, resource)
}

// Record returns a record.
func (s *Service) Record(ctx context.Context, resource, key store.Name) (store.Record, error) {
	got, err := s.api.Get(ctx, string(resource), string(key))
	return store.Record{Value: got.Value, ContentType: got.ContentType, Version: got.Version, Token: got.Token.Token,
		Sequence: got.Token.Sequence}, s.errorOf(err, resource)
}

// Commit sends one write as a put or a delete, but for what these can't say.
func (s *Service) Commit(ctx context.Context, w store.Write) (store.Result, error) {
	write := lockclient.Write{Token: api.FencingToken{Token: w.Token, Sequence: w.Sequence}}
	if w.LeaseID != nil {
		write.LeaseID = w.LeaseID.String()
	}
	write.IfMatch = w.Operation.Expect
	if w.Operation.Expect != nil && *w.Operation.Expect == store.ExpectNone {
		write.IfMatch, write.IfNoneMatch = nil, true
	}
	var got api.WriteResult
	var err error
	switch {
	case w.Token == 0, w.Operation.Kind == store.Delete && write.IfNoneMatch:
		results, err := s.Write(ctx, []store.Write{w})
		if err != nil {
			return store.Result{}, err
		}
		return results[0], nil
	case w.Operation.Kind == store.Delete:
		got, err = s.api.Delete(ctx, string(w.Resource), string(w.Operation.Key), write)
	default:
		write.Value, write.ContentType = w.Operation.Value, w.Operation.ContentType
		got, err = s.api.Put(ctx, string(w.Resource), string(w.Operation.Key), write)
	}
	return store.Result{Version: got.Version, Replayed: got.Replayed, Created: s.status.created()},
		s.errorOf(err, w.Resource)
}

// Write sends writes as one array.
func (s *Service) Write(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	body := make([]api.BulkWrite, len(writes))
	for i, w := range writes {
		body[i] = api.BulkWrite{Op: string(w.Operation.Kind), Resource: string(w.Resource), Key: string(w.Operation.Key),
			IfVersion: w.Operation.Expect, FencingToken: optional(w.Token), Sequence: w.Sequence, LeaseID: leaseText(w.LeaseID)}
		body[i].ValueBase64, body[i].ContentType = valueOf(w.Operation)
	}
	var got api.BulkResults
	err := s.api.Call(ctx, lockclient.Call{Op: "write", Method: http.MethodPost, Path: "/v1/writes", Body: body}, &got)
	if err != nil {
		return nil, s.errorOf(err, "")
	}
	if len(got.Results) != len(writes) {
		return nil, fmt.Errorf("%d results of %d writes", len(got.Results), len(writes))
	}
	results := make([]store.Result, len(writes))
	for i, w := range writes {
		one := got.Results[i]
		if one.Problem != nil {
			results[i].Err = errorOfProblem(one.Problem, w.Resource)
			continue
		}
		results[i] = store.Result{Version: one.Result.Version, Replayed: one.Result.Replayed,
			Created: one.Status == http.StatusCreated}
	}
	return results, nil
}

func leaseText(id *uuid.UUID) *string {
	if id == nil {
		return nil
	}
	return new(id.String())
}

// valueOf is the value of a put, and its type.
func valueOf(op store.Operation) (*string, string) {
	if op.Kind != store.Put {
		return nil, ""
	}
	return new(base64.StdEncoding.EncodeToString(op.Value)), op.ContentType
}

// Transact sends a transaction.
func (s *Service) Transact(ctx context.Context, transaction store.Transaction) (store.TransactionResult, error) {
	var body api.TransactionRequest
	for _, token := range transaction.Tokens {
		body.Fences = append(body.Fences, api.WriteToken{Resource: string(token.Resource), FencingToken: optional(token.Token),
			Sequence: token.Sequence, LeaseID: leaseText(token.LeaseID)})
	}
	for _, op := range transaction.Operations {
		sent := api.Op{Op: string(op.Kind), Resource: string(op.Resource), Key: string(op.Key), IfVersion: op.Expect}
		sent.ValueBase64, sent.ContentType = valueOf(op.Operation)
		body.Ops = append(body.Ops, sent)
	}
	got, err := s.api.Transaction(ctx, body)
	result := store.TransactionResult{Replayed: got.Replayed}
	for _, one := range got.Results {
		result.Versions = append(result.Versions, one.Version)
	}
	return result, s.errorOf(err, "")
}

// errorOf is the error of a store that the gateway has answered as a problem.
func (s *Service) errorOf(err error, lock store.Name) error {
	s.failed = err
	p := lockclient.ProblemOf(err)
	switch {
	case err == nil:
		return nil
	case p == nil:
		return &store.UnavailableError{Outcome: store.OutcomeUnknown}
	}
	return errorOfProblem(p, lock)
}

func errorOfProblem(p *api.Problem, lock store.Name) error {
	value := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	switch p.Code {
	case api.CodeLockHeld:
		held := &store.HeldError{Lock: lock}
		if p.Holder != nil {
			held.OwnerID, held.Principal, held.ExpiresAt = p.Holder.OwnerID, p.Holder.Principal, p.Holder.ExpiresAt.Time
		}
		return held
	case api.CodeLeaseLost:
		if strings.HasPrefix(p.Detail, "The session has ended") {
			lock = ""
		}
		return &store.LostError{Lock: lock, Reason: p.Reason}
	case api.CodeNotFound:
		return store.ErrNotFound
	case api.CodeInvalidRequest:
		if strings.Contains(p.Detail, "that lock service") {
			return store.ErrExternalAuthority
		}
		return fmt.Errorf("%w: %s", store.ErrInvalid, p.Detail)
	case api.CodeUnavailable:
		return &store.UnavailableError{Outcome: store.Outcome(p.Outcome)}
	case api.CodeUnsupported:
		return store.ErrUnsupported
	case api.CodeTokenRequired, api.CodeTokenUnknown, api.CodeTokenStale, api.CodeLeaseMismatch, api.CodeLeaseExpired,
		api.CodeVersionMismatch:
		return &store.RejectedError{Verdict: store.Verdict(p.Code), Reason: p.Reason, Op: p.Op, Version: value(p.Version),
			GrantedToken: value(p.GrantedToken), LastToken: value(p.LastToken), LastSequence: value(p.LastSequence)}
	}
	return errors.New(string(p.Code))
}
