package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// scenarioWrite is a write as the functions take it.
type scenarioWrite struct {
	index           int // in the command
	resource        string
	token, sequence *int64
	digest          []byte
	kind, key       string
	value           []byte
	expected        *int64
}

// column is one argument of the functions: an array with an element for each write.
func column[T any](writes []scenarioWrite, of func(w scenarioWrite) T) []T {
	out := make([]T, len(writes))
	for i, write := range writes {
		out[i] = of(write)
	}
	return out
}

// inTurns puts the first writes to all resources first, then the second ones, and so on, as fence.write takes them. It
// returns the last index of each turn, too.
func inTurns(writes []scenarioWrite) (ordered []scenarioWrite, turnEnds []int) {
	turn := map[string]int{}
	turns := make([][]scenarioWrite, len(writes))
	for _, write := range writes {
		turns[turn[write.resource]] = append(turns[turn[write.resource]], write)
		turn[write.resource]++
	}
	for _, writes := range turns {
		if ordered = append(ordered, writes...); len(writes) > 0 {
			turnEnds = append(turnEnds, len(ordered))
		}
	}
	return ordered, turnEnds
}

// parseWrites reads lines of RESOURCE token=T [seq=N] [if=VERSION|any] put KEY=VALUE.
func (s *scenario) parseWrites(lines []string) (writes []scenarioWrite, err error) {
	for i, line := range lines {
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("%q is no write", line)
		}
		w := scenarioWrite{index: i, resource: words[0], kind: words[len(words)-2]}
		key, value, _ := strings.Cut(words[len(words)-1], "=")
		w.key, w.value = key, []byte(value)
		for _, word := range words[1 : len(words)-2] {
			option, value, _ := strings.Cut(word, "=")
			switch option {
			case "token":
				var token int64
				token, err = s.tokenOf(w.resource, value)
				w.token = &token
			case "seq":
				w.sequence, err = numberArgument(value)
			case "if":
				w.expected, err = numberArgument(strings.Replace(value, "any", "-1", 1))
			default:
				err = fmt.Errorf("unknown option %q", word)
			}
			if err != nil {
				return nil, err
			}
		}
		digest := sha256.Sum256([]byte(fmt.Sprint(w.resource, w.kind, words[len(words)-1], w.expected != nil)))
		w.digest = digest[:16]
		writes = append(writes, w)
	}
	return writes, nil
}

func numberArgument(word string) (*int64, error) {
	number, err := strconv.ParseInt(word, 10, 64)
	return &number, err
}

// scenarioVerdict is what the functions answer, for a set and a transaction alike.
type scenarioVerdict struct {
	Index                            int
	Verdict, Reason                  string
	Version                          int64
	Created, Replayed                bool
	Granted, LastToken, LastSequence int64
}

func (s *scenario) writesAction(lines []string) (action, error) {
	parsed, err := s.parseWrites(lines)
	if err != nil {
		return nil, err
	}
	w, turnEnds := inTurns(parsed)
	return again(func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		rows, err := conn.Query(ctx, `
			select verdict.*
			from fence.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, null) w
			cross join lateral (
				select a.index, 'admitted', '', a.version, a.index = any (coalesce(w.created, '{}')), a.index = any
					(coalesce(w.replayed, '{}')), 0, 0, 0
				from unnest(w.admitted, w.versions) as a (index, version)
				union all
				select r.index, r.verdict, r.reason, r.version, false, false, r.granted_token, r.last_token, r.last_sequence
				from unnest(w.refused, w.verdicts, w.reasons, w.current_versions, w.granted_tokens, w.last_tokens, w.last_sequences)
					as r (index, verdict, reason, version, granted_token, last_token, last_sequence)
			) verdict
			order by verdict.index`,
			column(w, func(w scenarioWrite) string { return w.resource }),
			column(w, func(w scenarioWrite) *int64 { return w.token }),
			column(w, func(w scenarioWrite) *int64 { return w.sequence }),
			make([]*uuid.UUID, len(w)),
			column(w, func(w scenarioWrite) []byte { return w.digest }),
			column(w, func(w scenarioWrite) string { return w.kind }),
			column(w, func(w scenarioWrite) string { return w.key }), column(w, func(w scenarioWrite) []byte { return w.value }),
			column(w, func(scenarioWrite) string { return "text/plain" }),
			column(w, func(w scenarioWrite) *int64 { return w.expected }), turnEnds)
		if err != nil {
			return nil, err
		}
		verdicts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[scenarioVerdict])
		return func() string {
			lines := make([]string, len(verdicts))
			for i, v := range verdicts {
				lines[w[i].index] = s.verdictLine(v)
			}
			return strings.Join(lines, "\n")
		}, err
	}), nil
}

// again does what the server has undone (see fence.write), as every client of these functions must.
func again(do action) action {
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		for {
			result, err := do(ctx, conn)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "40001" {
				return result, err
			}
		}
	}
}

// verdictLine shows a verdict and, for one by the tokens, the fence.
func (s *scenario) verdictLine(v scenarioVerdict) string {
	switch {
	case v.Replayed:
		return fmt.Sprintf("admitted, version %d (replayed)", v.Version)
	case v.Verdict == "admitted" && v.Created:
		return fmt.Sprintf("admitted, version %d (created)", v.Version)
	case v.Verdict == "admitted":
		return fmt.Sprintf("admitted, version %d", v.Version)
	case v.Verdict == "version_mismatch":
		return fmt.Sprintf("version_mismatch: it is %d", v.Version)
	case v.Verdict == "not_found":
		return v.Verdict
	}
	if v.Reason != "" {
		v.Verdict += ": " + v.Reason
	}
	return fmt.Sprintf("%s (granted %s, last %s.%d)", v.Verdict, s.token(v.Granted), s.token(v.LastToken), v.LastSequence)
}

func (s *scenario) transactAction(lines []string) (action, error) {
	w, err := s.parseWrites(lines)
	if err != nil {
		return nil, err
	}
	var tokens []scenarioWrite // the first write to each resource
	indexes := column(w, func(w scenarioWrite) int32 {
		i := slices.IndexFunc(tokens, func(token scenarioWrite) bool { return token.resource == w.resource })
		if i < 0 {
			i, tokens = len(tokens), append(tokens, w)
		}
		return int32(i) + 1
	})
	digest := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return func(ctx context.Context, conn *pgx.Conn) (scenarioResult, error) {
		var v scenarioVerdict
		var versions []int64
		err := conn.QueryRow(ctx, `
			select coalesce(index, 0), verdict, coalesce(reason, ''), coalesce(current, 0), false, coalesce(replayed, false),
				coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0), versions
			from fence.transact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			column(tokens, func(w scenarioWrite) string { return w.resource }),
			column(tokens, func(w scenarioWrite) *int64 { return w.token }),
			column(tokens, func(w scenarioWrite) *int64 { return w.sequence }),
			make([]*uuid.UUID, len(tokens)),
			digest[:16], column(w, func(w scenarioWrite) string { return w.kind }), indexes,
			column(w, func(w scenarioWrite) string { return w.key }),
			column(w, func(w scenarioWrite) []byte { return w.value }),
			column(w, func(scenarioWrite) string { return "text/plain" }),
			column(w, func(w scenarioWrite) *int64 { return w.expected })).
			Scan(&v.Index, &v.Verdict, &v.Reason, &v.Version, &v.Created, &v.Replayed, &v.Granted, &v.LastToken, &v.LastSequence,
				&versions)
		return func() string {
			if v.Verdict != "admitted" {
				return fmt.Sprintf("refused for index %d: %s", v.Index, s.verdictLine(v))
			}
			replayed := map[bool]string{true: " (replayed)"}[v.Replayed]
			return fmt.Sprintf("admitted, versions %s%s", strings.Trim(fmt.Sprint(versions), "[]"), replayed)
		}, err
	}, nil
}
