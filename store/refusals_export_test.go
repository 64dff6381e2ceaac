package store

import "fmt"

// Forgotten returns how often the Service has forgotten its refusals.
func (s *Service) Forgotten() uint64 { return s.refusals.generation.Load() }

// RefusalMemory is the memory alone.
type RefusalMemory struct{ refusals *refusals }

// NewRefusalMemory returns one that trusts.
func NewRefusalMemory(rememberedMax int) RefusalMemory {
	r := newRefusals(rememberedMax)
	r.trust()
	return RefusalMemory{r}
}

// Len returns how many resources are remembered.
func (m RefusalMemory) Len() int { return m.refusals.len() }

// Forget is what a change of policies does.
func (m RefusalMemory) Forget() { m.refusals.forget() }

// Ask looks for a write, and returns the end of it: to learn a verdict.
func (m RefusalMemory) Ask(resource Name, token int64) (refused bool, learn func(RejectedError)) {
	rejected, was := m.refusals.consult(&Write{WriteToken: WriteToken{Resource: resource, Token: token}})
	return rejected != nil, func(verdict RejectedError) {
		verdict.Resource, verdict.Token, verdict.Verdict, verdict.Reason = resource, token, VerdictTokenStale, "superseded"
		m.refusals.learn(was, fmt.Errorf("wrapped: %w", &verdict))
	}
}

// WouldRefuse reports whether a write would be refused without the database.
func (s *Service) WouldRefuse(write Write) bool {
	rejected, _ := s.refusals.consult(&write)
	return rejected != nil
}
