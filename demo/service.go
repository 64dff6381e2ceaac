package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// Service is a lock service other than fencegate.
type Service interface {
	// Acquire waits for the lock. The service grants it to another process once this one has been frozen for ttl.
	Acquire(ctx context.Context, lock string, ttl time.Duration) (Grant, error)
}

// Grant is a lock that a Service has granted.
type Grant struct {
	// Token is the number that fencegate takes as fencing token. Number says what it is: "create revision".
	Token  int64
	Number string
}

// acquireFromService is acquire for a Service.
func (w Worker) acquireFromService(ctx context.Context, emit func(Event)) (token int64, err error) {
	emit(Event{Event: "asked", Text: fmt.Sprintf("asks %s for %s, and waits while another has it", w.ServiceName, w.Lock)})
	grant, err := w.Service.Acquire(ctx, w.Lock, w.TTL)
	if err != nil {
		return 0, fmt.Errorf("acquire %s from %s: %w", w.Lock, w.ServiceName, err)
	}
	emit(Event{Event: "granted", Token: grant.Token, Text: fmt.Sprintf(
		"is granted %s by %s with %s %d, and a TTL of %s", w.Lock, w.ServiceName, grant.Number, grant.Token, w.TTL)})
	return grant.Token, nil
}

// setExternal sets the policy that another service issues the tokens of the name and all below. The func that it
// returns removes the policy.
func (s *setup) setExternal(ctx context.Context, prefix string) (remove func(), err error) {
	client, err := s.connect(s.urls[0])
	if err != nil {
		return nil, err
	}
	if _, err = admin.New(client).PutPolicy(ctx, prefix, api.PolicyRequest{Authority: "external"}); err != nil {
		client.Close()
		return nil, err
	}
	s.print(Event{Event: "policy", Text: "the policy of " + prefix + ": authority external"})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_ = admin.New(client).DeletePolicy(ctx, prefix)
		client.Close()
	}, nil
}
