package main

import (
	"slices"
	"strings"
	"testing"
)

// TestMutants checks what each rule makes of a body, and what it leaves alone.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		want       []string // in the order of the places
	}{
		{"conjuncts", "return a and b(c and d) and e;", []string{
			"return a and e;", "return b(c and d) and e;", "return a and b(c) and e;", "return a and b(d) and e;",
			"return a and b(c and d);"}},
		{"disjuncts hold conjuncts", "if a and b or c then", []string{"if a or c then", "if b or c then", "if a and b then", "if c then"}},
		{"a case is one operand", "return case when a then b else c end and d;", []string{
			"return case when a then b else c end;", "return d;"}},
		{"the and of between stays", "where a between 1 and 2 and b", []string{"where a between 1 and 2"}},
		{"joins end a condition", "from a join b on c and d left join e on left(f, 1) and g where h", []string{
			"from a join b on c left join e on left(f, 1) and g where h",
			"from a join b on d left join e on left(f, 1) and g where h",
			"from a join b on c and d left join e on left(f, 1) where h",
			"from a join b on c and d left join e on g where h"}},
		{"comparisons", "if a = 1 then b <= 2; c > 3", []string{
			"if a <> 1 then b <= 2; c > 3", "if a = 1 then b < 2; c > 3", "if a = 1 then b <= 2; c >= 3",
			"if a = 1 then b <= 2; c < 3"}},
		{"an operator of a schema", "a operator(pg_catalog.<>) b", []string{"a operator(pg_catalog.=) b"}},
		{"distinct", "where a is distinct from b", []string{"where a is not distinct from b"}},
		{"assignments are no comparisons", "update t set a = 1, b = (c, d) = e from f where g = h", []string{
			"update t set a = 1, b = (c, d) <> e from f where g = h", "update t set a = 1, b = (c, d) = e from f where g <> h"}},
		{"nor are the options of an exception", "raise exception 'x' using errcode = 'y', hint = 'z';", nil},
		{"nor is what is in strings and comments", `return 'a and b' || "c = d"; -- e and f`, nil},
		{"not", "if not a and b is not null then c text not null", []string{
			"if a and b is not null then c text not null", "if not a then c text not null",
			"if b is not null then c text not null", "if not a and b is null then c text not null"}},
		{"locks", "from a for no key update of b skip locked; for c in select", []string{
			"from a; for c in select", "from a for no key update of b; for c in select"}},
		{"orders", "array_agg(a order by b), c order by d desc limit 1", []string{
			"array_agg(a), c order by d desc limit 1", "array_agg(a order by b), c limit 1"}},
		{"calls for their effect", "begin perform fence.a(b, c); perform d; end", []string{"begin null; perform d; end"}},
		{"dynamic SQL", "execute format($q$ where %1$s and %2$I for update of %2$I $q$, a);", []string{
			"execute format($q$ where %1$s for update of %2$I $q$, a);", "execute format($q$ where %2$I for update of %2$I $q$, a);",
			"execute format($q$ where %1$s and %2$I $q$, a);"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const head, tail = "create function fence.f(a text default b = c)\nset search_path = x as $$ ", " $$;"
			var got []string
			for _, m := range mutants("f", head+c.body+tail) {
				body, ok := strings.CutSuffix(strings.TrimPrefix(m.source, head), tail)
				if !ok || m.source == head+c.body+tail {
					t.Errorf("the mutant is %q", m.source)
				}
				got = append(got, plain(body))
			}
			var want []string
			for _, text := range c.want {
				want = append(want, plain(text))
			}
			if !slices.Equal(got, want) {
				t.Errorf("the mutants are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// plain is a text without spaces, which the rules leave behind.
func plain(text string) string { return strings.Join(strings.Fields(text), "") }

// TestChangesHaveNames checks that no two mutants of the functions have the same name, and that each equivalent one is
// one of them.
func TestChangesHaveNames(t *testing.T) {
	t.Chdir("../../..")
	seen := map[string]*place{}
	for _, p := range all() {
		if seen[p.id()] != nil {
			t.Errorf("%s and %s have the same name", seen[p.id()], p)
		}
		seen[p.id()] = p
	}
	if len(seen) < 1000 {
		t.Errorf("there are %d mutants", len(seen))
	}
	for name := range reasons() {
		if seen[name] == nil {
			t.Errorf("no rule makes the equivalent mutant %q", name)
		}
	}
}
