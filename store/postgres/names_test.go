package postgres_test

import (
	"context"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	pgtest "github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// nameJudge asks the database which texts are names, many at once.
type nameJudge struct{ sql *pgxpool.Pool }

func newNameJudge(t testing.TB) nameJudge {
	t.Helper()
	sql, err := pgxpool.New(context.Background(), pgtest.Migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	_, err = sql.Exec(context.Background(), `
		create function public.is_name(text) returns boolean language plpgsql as $$
		begin
			perform $1::fence.name;
			return true;
		exception when check_violation then
			return false;
		end
		$$`)
	if err != nil {
		t.Fatal(err)
	}
	return nameJudge{sql}
}

// expectAgreement compares ParseName with the domain fence.name. What the database can't even hold as text must be no
// name.
func (j nameJudge) expectAgreement(t rapid.TB, texts []string) {
	var sendable []string
	for _, text := range texts {
		_, err := store.ParseName(text)
		switch {
		case utf8.ValidString(text) && !strings.ContainsRune(text, 0):
			sendable = append(sendable, text)
		case err == nil:
			t.Fatalf("%q is a name, but no text", text)
		}
	}
	var verdicts []bool
	err := j.sql.QueryRow(context.Background(), `
		select coalesce(array_agg(public.is_name(text) order by index), '{}') from unnest($1::text[]) with ordinality t (text, index)`,
		sendable).Scan(&verdicts)
	if err != nil || len(verdicts) != len(sendable) {
		t.Fatalf("%d verdicts on %d texts: %v", len(verdicts), len(sendable), err)
	}
	for i, text := range sendable {
		if _, err := store.ParseName(text); verdicts[i] != (err == nil) {
			t.Errorf("%q: the database says %v, ParseName %v", text, verdicts[i], err)
		}
	}
}

// nameLike makes texts that are names or nearly so.
func nameLike() *rapid.Generator[string] {
	segment := rapid.OneOf(
		rapid.SampledFrom([]string{"", ".", "..", "...", "a", "job-42", "x\x7f", "\u0085", strings.Repeat("s", 500),
			strings.Repeat("é", 250)}),
		rapid.StringOfN(rapid.RuneFrom(nil, unicode.Cc, unicode.L, unicode.P, unicode.Z), 1, 20, -1),
		rapid.StringN(1, 200, -1),
	)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(segment, 0, 5).Draw(t, "segments"), "/")
	})
}

// TestCharactersAgreeWithDatabase checks that ParseName and the database agree on every character that could be
// special.
func TestCharactersAgreeWithDatabase(t *testing.T) {
	t.Parallel()
	var every []string // one of each character that could be special
	for char := rune(0); char < 0x300; char++ {
		every = append(every, string(char), "a/"+string(char)+"/b")
	}
	newNameJudge(t).expectAgreement(t, every)
}

// TestNamesAgreeWithDatabase checks that ParseName and the database agree on random texts.
func TestNamesAgreeWithDatabase(t *testing.T) {
	t.Parallel()
	judge := newNameJudge(t)
	rapid.Check(t, func(t *rapid.T) {
		judge.expectAgreement(t, rapid.SliceOfN(nameLike(), 1, 100).Draw(t, "texts"))
	})
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "", "/", "a//b", ".", "..", "a\x00", "\xff", "é\u0080",
		strings.Repeat("x", 513)} {
		f.Add(seed)
	}
	judge := newNameJudge(f)
	f.Fuzz(func(t *testing.T, text string) { judge.expectAgreement(t, []string{text}) })
}
