package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
)

// writeArrays are writes as the functions take them.
type writeArrays struct {
	resources []string
	tokens    []*int64
	sequences []*int64
	leaseIDs  []*uuid.UUID
	digests   [][]byte
	kinds     []string
	keys      []string
	values    [][]byte
	types     []string
	expected  []*int64
}

// arrange puts the first writes to all resources first, then the second ones, and so on, as fence.write takes them. It returns the last place of
// each turn, and where each write was before.
func (w *writeArrays) arrange() (turnEnds, before []int) {
	latest := map[string]int{}
	turns := make([][]int, len(w.resources))
	for i, resource := range w.resources {
		turns[latest[resource]] = append(turns[latest[resource]], i)
		latest[resource]++
	}
	for _, turn := range turns {
		before = append(before, turn...)
		if len(turn) > 0 {
			turnEnds = append(turnEnds, len(before))
		}
	}
	w.resources, w.tokens, w.sequences = permuted(w.resources, before), permuted(w.tokens, before), permuted(w.sequences, before)
	w.leaseIDs, w.digests, w.kinds = permuted(w.leaseIDs, before), permuted(w.digests, before), permuted(w.kinds, before)
	w.keys, w.values, w.types = permuted(w.keys, before), permuted(w.values, before), permuted(w.types, before)
	w.expected = permuted(w.expected, before)
	return turnEnds, before
}

func permuted[T any](items []T, from []int) []T {
	out := make([]T, len(items))
	for place, i := range from {
		out[place] = items[i]
	}
	return out
}

// add understands RESOURCE token=T [seq=N] [lease=SESSION] [if=VERSION|none|any] put KEY=VALUE | delete KEY.
func (w *writeArrays) add(s *scene, line string) error {
	words := strings.Fields(line)
	if len(words) < 4 {
		return fmt.Errorf("%q is no write", line)
	}
	name, options, kind, what := words[0], words[1:len(words)-2], words[len(words)-2], words[len(words)-1]
	var token, sequence, expected *int64
	var leaseID *uuid.UUID
	for _, word := range options {
		option, value, _ := strings.Cut(word, "=")
		var err error
		switch option {
		case "token":
			token, err = s.tokenArgument(name, value)
		case "seq":
			sequence, err = numberArgument(value)
		case "lease":
			var id uuid.UUID
			id, err = s.leaseIDOf(name, value)
			leaseID = &id
		case "if":
			expected, err = numberArgument(strings.NewReplacer("none", "0", "any", "-1").Replace(value))
		default:
			err = fmt.Errorf("what is %q?", word)
		}
		if err != nil {
			return err
		}
	}
	key, value, _ := strings.Cut(what, "=")
	digest := sha256.Sum256([]byte(fmt.Sprint(name, kind, what, expected != nil)))
	w.resources, w.tokens, w.sequences = append(w.resources, name), append(w.tokens, token), append(w.sequences, sequence)
	w.leaseIDs, w.digests, w.kinds = append(w.leaseIDs, leaseID), append(w.digests, digest[:16]), append(w.kinds, kind)
	w.keys, w.values, w.types = append(w.keys, key), append(w.values, []byte(value)), append(w.types, "text/plain")
	w.expected = append(w.expected, expected)
	return nil
}

func (s *scene) tokenArgument(name, word string) (*int64, error) {
	token, err := s.tokenOf(name, word)
	if err != nil || token == 0 {
		return nil, err
	}
	return &token, nil
}

func numberArgument(word string) (*int64, error) {
	number, err := strconv.ParseInt(word, 10, 64)
	return &number, err
}

// sceneVerdict is what the functions answer, for a set and a transaction alike.
type sceneVerdict struct {
	Place                            int
	Verdict, Reason                  string
	Version                          int64
	Created, Replayed                bool
	Granted, LastToken, LastSequence int64
}

func (s *scene) setAct(a *actor, lines []string) (act, error) {
	var w writeArrays
	for _, line := range lines {
		if err := w.add(s, line); err != nil {
			return nil, err
		}
	}
	turnEnds, before := w.arrange()
	return again(func(ctx context.Context, conn *pgx.Conn) (told, error) {
		rows, err := conn.Query(ctx, `
			select verdict.*
			from fence.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, null) w
			cross join lateral (
				select a.place, 'admitted', '', a.version, a.place = any (coalesce(w.created, '{}')), a.place = any (coalesce(w.replayed, '{}')), 0, 0, 0
				from unnest(w.admitted, w.versions) as a (place, version)
				union all
				select r.place, r.verdict, r.reason, r.version, false, false, r.granted_token, r.last_token, r.last_sequence
				from unnest(w.refused, w.verdicts, w.reasons, w.current_versions, w.granted_tokens, w.last_tokens, w.last_sequences)
					as r (place, verdict, reason, version, granted_token, last_token, last_sequence)
			) verdict
			order by verdict.place`,
			w.resources, w.tokens, w.sequences, w.leaseIDs, w.digests, w.kinds, w.keys, w.values, w.types, w.expected, turnEnds)
		if err != nil {
			return nil, err
		}
		verdicts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sceneVerdict])
		return func() string {
			lines := make([]string, len(verdicts))
			for i, v := range verdicts {
				lines[before[i]] = s.tell(v)
				s.record(a, v, &w, i)
			}
			return strings.Join(lines, "\n")
		}, err
	}), nil
}

// again does what the server has undone (see fence.write), as every client of these functions must.
func again(do act) act {
	return func(ctx context.Context, conn *pgx.Conn) (told, error) {
		for {
			told, err := do(ctx, conn)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "40001" {
				return told, err
			}
		}
	}
}

// tell shows a verdict and, of one by the tokens, the fence that it was made by.
func (s *scene) tell(v sceneVerdict) string {
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
	return fmt.Sprintf("%s (granted %s, last %s.%d)",
		verdictText(store.Verdict(v.Verdict), v.Reason), s.token(v.Granted), s.token(v.LastToken), v.LastSequence)
}

func verdictText(verdict store.Verdict, reason string) string {
	if reason == "" {
		return string(verdict)
	}
	return string(verdict) + ": " + reason
}

// record hands a rejection to the recorder, as a gateway does.
func (s *scene) record(a *actor, v sceneVerdict, w *writeArrays, i int) {
	if v.Replayed || v.Verdict == "admitted" || v.Verdict == "not_found" {
		return
	}
	rejected := &store.RejectedError{
		Verdict: store.Verdict(v.Verdict), Reason: v.Reason, Resource: store.Name(w.resources[i]), Key: store.Name(w.keys[i]),
		Sequence: w.sequences[i], GrantedToken: v.Granted, LastToken: v.LastToken, LastSequence: v.LastSequence,
	}
	if w.tokens[i] != nil {
		rejected.Token = *w.tokens[i]
	}
	s.recorder.Record(rejected, "scenario", a.name)
}

func (s *scene) transactAct(_ *actor, lines []string) (act, error) {
	var w, claims writeArrays
	var places []int32
	for _, line := range lines {
		if err := w.add(s, line); err != nil {
			return nil, err
		}
		places = append(places, claims.claim(&w))
	}
	digest := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return func(ctx context.Context, conn *pgx.Conn) (told, error) {
		var v sceneVerdict
		var versions []int64
		err := conn.QueryRow(ctx, `
			select coalesce(index, 0), verdict, coalesce(reason, ''), coalesce(current, 0), false, coalesce(replayed, false),
				coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0), versions
			from fence.transact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			claims.resources, claims.tokens, claims.sequences, claims.leaseIDs, digest[:16],
			w.kinds, places, w.keys, w.values, w.types, w.expected).
			Scan(&v.Place, &v.Verdict, &v.Reason, &v.Version, &v.Created, &v.Replayed, &v.Granted, &v.LastToken, &v.LastSequence, &versions)
		return func() string {
			if v.Verdict != "admitted" {
				return fmt.Sprintf("refused for place %d: %s", v.Place, s.tell(v))
			}
			replayed := map[bool]string{true: " (replayed)"}[v.Replayed]
			return fmt.Sprintf("admitted, versions %s%s", strings.Trim(fmt.Sprint(versions), "[]"), replayed)
		}, err
	}, nil
}

// claim takes the claim of the last write of another, unless the resource is claimed already, and returns its place from 1.
func (w *writeArrays) claim(of *writeArrays) int32 {
	last := len(of.resources) - 1
	for i, resource := range w.resources {
		if resource == of.resources[last] {
			return int32(i) + 1
		}
	}
	w.resources, w.tokens = append(w.resources, of.resources[last]), append(w.tokens, of.tokens[last])
	w.sequences, w.leaseIDs = append(w.sequences, of.sequences[last]), append(w.leaseIDs, of.leaseIDs[last])
	return int32(len(w.resources))
}
