package journal

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Cost is what a failover did to a history.
type Cost struct {
	Acknowledged int // writes
	Lost         int // of these, those that the database does not have
	Tokens       int // those that were granted twice, or after a greater one
	Admitted     int // writes with a token lower than one that had been granted
}

// Cost compares what clients saw with what the database has, where it may have lost commits. No client is at work any
// more.
func (j *Journal) Cost(ctx context.Context, db *pgxpool.Pool) (Cost, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := readState(ctx, db, "", j.Rows)
	if err != nil {
		return Cost{}, fmt.Errorf("read what the database has: %w", err)
	}
	return costOf(j.history, stored), nil
}

func costOf(h history, s state) (cost Cost) {
	kept := map[string]bool{}
	for _, record := range s.records {
		kept[record.resource+"/"+record.key] = true
	}
	for _, w := range h.writes {
		if w.outcome == acknowledged {
			cost.Acknowledged++
			if !kept[w.resource+"/"+w.key] {
				cost.Lost++
			}
		}
	}
	for _, l := range split(h, s) {
		var tokens, zombies findings
		l.tokensRise(&tokens)
		l.olderTokensAreShutOut(&zombies)
		cost.Tokens += len(tokens)
		cost.Admitted += len(zombies)
	}
	return cost
}
