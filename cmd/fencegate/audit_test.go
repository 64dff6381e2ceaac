package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// sealedLog is a gateway with an audit log of three seals, and SQL of the owner of its database.
type sealedLog struct {
	shell

	sql *pgx.Conn
}

// newSealedLog makes seal 1 of the entries 1 to 3, seal 2 of 4, which is prunable, and 5, and seal 3 of 6. Entry 7 is not
// sealed. The gateway does not sweep.
func newSealedLog(t *testing.T) sealedLog {
	t.Helper()
	url := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	l := sealedLog{newShellOn(t, url, "--sweep-interval", "1h"), conn}
	for _, entries := range []string{"ppp", "-p", "p", "p"} {
		for _, kind := range entries {
			principal := strings.ReplaceAll(string(kind), "-", "anonymous")
			l.exec("select fence.note_action('policy_set', 'é <b>', '{\"b\": 1.50, \"a\": \"\\u2028\\n\"}', $1, '::1')", principal)
		}
		if count := l.count("select count(*) from fence.audit"); count < 7 {
			l.seal()
		}
	}
	return l
}

func (l sealedLog) exec(sql string, args ...any) {
	l.t.Helper()
	if _, err := l.sql.Exec(l.t.Context(), sql, args...); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}

func (l sealedLog) count(sql string) (count int) {
	l.t.Helper()
	if err := l.sql.QueryRow(l.t.Context(), sql).Scan(&count); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	return count
}

func (l sealedLog) seal() { l.exec("select fence.sweep_all()") }

// verify returns what the command found, and checks that its exit code fits.
func (l sealedLog) verify(args ...string) verified {
	l.t.Helper()
	result := l.do(append([]string{"audit", "verify", "-o", "json"}, args...)...)
	var found verified
	if err := json.Unmarshal([]byte(result.out), &found); err != nil || (result.code == exitFailure) != (len(found.Wrong) > 0) ||
		result.code != exitFailure && result.code != exitOK {
		l.t.Fatalf("%v exited with %d and %q, %q (%v)", args, result.code, result.out, result.errOut, err)
	}
	return found
}

const (
	// copyOfLog makes tables in which the log is kept, restoreLog restores it.
	copyOfLog = `create table kept_entries as select id, at, principal, address, action, name, details, seal from fence.audit;
		create table kept_seals as select * from fence.audit_seals`
	restoreLog = `delete from fence.audit; delete from fence.audit_seals; insert into fence.audit_seals select * from kept_seals;
		insert into fence.audit (id, at, principal, address, action, name, details, seal) overriding system value
		select * from kept_entries`
	// hashAnew computes the hash of seal 2, as who knows how it is made.
	hashAnew = `update fence.audit_seals set hash = encode(sha256(convert_to(concat_ws(' ', seal,
		(extract(epoch from at) * 1000000)::bigint, previous) || E'\n' || entries, 'UTF8')), 'hex') where seal = 2`
	// sealAnew replaces all seals.
	sealAnew = `update fence.audit set name = 'm', seal = null; delete from fence.audit_seals;
		select fence.seal_audit(3); select fence.seal_audit(2); select fence.seal_audit(1)`
)

// TestAuditVerify checks that each change of a sealed log is found and named in one sentence, and that what the sweep
// does is no change.
func TestAuditVerify(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t)
	intact := l.verify()
	if head := intact.Head; !strings.HasPrefix(head, "3:") || intact.First != 1 || intact.Last != 3 || intact.Present != 6 ||
		intact.Unsealed != 1 || intact.Expired+intact.Pruned != 0 {
		t.Errorf("the intact log is found to be %+v", intact)
	}
	l.exec(copyOfLog)
	zeros := strings.Repeat("0", 64)
	for _, c := range []struct {
		sql, head, want string
		retention       string
	}{
		{"update fence.audit set principal = 'q' where id = 2", "", "entry 2 was changed after seal 1 was made", ""},
		{"update fence.audit set at = at + interval '1 microsecond' where id = 5", "",
			"entry 5 was changed after seal 2 was made", ""},
		{"update fence.audit set details = '{}' where id = 4", "", "entry 4 was changed after seal 2 was made", ""},
		{"delete from fence.audit where id = 2", "",
			"entry 2 of seal 1 is missing: it was deleted before the end of the retention", ""},
		{"insert into fence.audit (principal, address, action, name, details, seal) values ('p', '', 'fence_set', '', '{}', 2)", "",
			"entry 8 was added to seal 2 after it was made", ""},
		{"update fence.audit set seal = 1 where id = 5", "", "entry 5 was added to seal 1 after it was made; " +
			"entry 5 of seal 2 is missing: it was deleted before the end of the retention", ""},
		{"update fence.audit_seals set at = at + interval '1 microsecond' where seal = 2", "",
			"seal 2 was changed: its hash is of something else", ""},
		{"update fence.audit_seals set at = at + interval '1 microsecond' where seal = 2; " + hashAnew, "",
			"seal 3 is not the one after seal 2: one of them was replaced, or changed with its hash", ""},
		{"update fence.audit_seals set entries = '' where seal = 3; delete from fence.audit where id = 6", "",
			"seal 3 was changed: its hash is of something else", ""},
		{"delete from fence.audit_seals where seal = 2; delete from fence.audit where seal = 2", "",
			"seals are missing before the end of the retention: 2 to 2", ""},
		{"delete from fence.audit_seals where seal = 3", "",
			"1 entries say that they are of seal 3, which does not exist: the first is entry 6", ""},
		{"delete from fence.audit_seals where seal = 3; delete from fence.audit where seal = 3", "", "", ""},
		{"delete from fence.audit_seals where seal = 3; delete from fence.audit where seal = 3", intact.Head,
			"seal 3, the head that you kept, is missing: the log was cut after seal 2", ""},
		{sealAnew, intact.Head, "seal 3 has another hash than the head that you kept: the log up to it was written anew", ""},
		{"select", intact.Head, "", ""},
		{"delete from fence.audit where prunable", intact.Head, "", ""},
		{"delete from fence.audit where seal < 3; delete from fence.audit_seals where seal < 3", "", "", "1h"},
		{"delete from fence.audit where seal < 3; delete from fence.audit_seals where seal < 3", "2:" + zeros,
			"seal 2, the head that you kept, is older than the log, which begins with seal 3: keep a newer one", "1h"},
	} {
		l.exec(c.sql)
		args := []string{"--audit-retention", cmp.Or(c.retention, "9600h")}
		if c.head != "" {
			args = append(args, "--head", c.head)
		}
		if got := strings.Join(l.verify(args...).Wrong, "; "); got != c.want {
			t.Errorf("after %s, verify %s found %q, want %q", c.sql, c.head, got, c.want)
		}
		l.exec(restoreLog)
	}
	out := l.do("audit", "verify")
	l.exec("delete from fence.audit where id in (4, 5)")
	if found := l.verify("--audit-retention", "1h"); found.Pruned != 1 || found.Expired != 1 || found.Present != 4 {
		t.Errorf("without the entries 4, which is prunable, and 5 the log is %+v", found)
	}
	if want := "seals     1 to 3\nentries   6\nexpired   0\npruned    0\nunsealed  1\nhead      " + intact.Head + "\n"; out.out != want {
		t.Errorf("it shows %q, want %q", out.out, want)
	}
}

// TestAuditVerifyAfterSweeps checks that the sweep deletes entries and seals so that the rest can be verified, also where
// all is older than the retention.
func TestAuditVerifyAfterSweeps(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t)
	l.exec("update fence.sweeps set age = '0', count_max = 1 where part = 'audit'")
	l.exec("select fence.sweep('audit', '0', null, null, null)")
	if found := l.verify("--audit-retention", "1h"); found.First != 3 || found.Last != 4 || found.Present+found.Unsealed != 0 || found.Expired != 2 {
		t.Errorf("what is left is %+v, want the last seal before the end of the retention, and the one that was made now", found)
	}
}

// TestAuditExport checks that an export has every entry once, also if it is interrupted at any byte, and an entry commits
// late; that it can be verified, and that changes of it are found.
func TestAuditExport(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t)
	l.exec("create table late as select nextval('fence.audit_id_seq') as id") // of a transaction that is still open
	first := l.must("audit", "export", "--after", "1")
	path := filepath.Join(t.TempDir(), "log")
	whole := l.must("audit", "export", "--append", path)
	if !strings.HasSuffix(whole, first) || strings.Count(whole, "\n") != 9 || strings.Count(first, "\n") != 5 {
		t.Errorf("the export is %q, after seal 1 %q, want the lines of 6 entries and 3 seals", whole, first)
	}
	l.exec("select fence.note_action('policy_set', 'n', '{}', 'p', '')")
	l.seal()
	l.exec(`insert into fence.audit (id, principal, address, action, name, details) overriding system value
		select id, 'late', '', 'policy_set', '', '{}' from late`)
	l.seal()
	rest := l.must("audit", "export", "--append", path)
	whole += rest
	if ids := []int{strings.Index(rest, `"id":9`), strings.Index(rest, `"id":8`)}; ids[0] < 0 || ids[1] < ids[0] {
		t.Errorf("the rest is %q, want the late entry 8 after 9", rest)
	}
	if err := os.WriteFile(path, []byte(whole+whole[:40]), 0o600); err != nil {
		t.Fatal(err)
	}
	l.must("audit", "export", "--append", path)
	if text, err := os.ReadFile(path); string(text) != whole {
		t.Fatalf("after a cut, the export of nothing new is %q (%v), want %q", text, err, whole)
	}
	for cut := 0; cut < len(whole); cut += 97 {
		if err := os.WriteFile(path, []byte(whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		l.must("audit", "export", "--append", path)
		if text, err := os.ReadFile(path); string(text) != whole {
			t.Fatalf("after a cut at byte %d, the export was continued to %q (%v), want %q", cut, text, err, whole)
		}
	}
	l.expectVerdicts(path, whole)
	l.expectRefusals(path, whole)
}

// expectRefusals checks that an export is not continued where the log does not follow it, and that the file is as before.
func (l sealedLog) expectRefusals(path, whole string) {
	l.t.Helper()
	l.exec(copyOfLog)
	upTo := func(seal string) string {
		_, rest, _ := strings.Cut(whole, `{"seal":`+seal+`,"at_us"`)
		return whole[:len(whole)-len(rest)+strings.Index(rest, "\n")+1]
	}
	for _, c := range []struct {
		sql, text string
		continued bool
	}{
		{"select", upTo("1"), true},
		{"delete from fence.audit_seals where seal = 1; delete from fence.audit where seal = 1", upTo("1"), true}, // its time is over
		{"delete from fence.audit_seals where seal = 2; delete from fence.audit where seal = 2", upTo("1"), false},
		{"update fence.audit_seals set at = at + interval '1 microsecond' where seal = 2; " + hashAnew, upTo("2"), false},
		{"delete from fence.audit_seals where seal > 1; delete from fence.audit where seal > 1", upTo("2"), false},
		{sealAnew, upTo("2"), false},
	} {
		l.exec(c.sql)
		check(l.t, os.WriteFile(path, []byte(c.text), 0o600))
		got := l.do("audit", "export", "--append", path)
		after, err := os.ReadFile(path)
		check(l.t, err)
		want, code := whole, exitOK
		if !c.continued {
			want, code = c.text, exitFailure
		}
		if got.code != code || string(after) != want || strings.Contains(got.errOut, "begin another") == c.continued {
			l.t.Errorf("after %s, the export of %d bytes was continued to %d, want %d; exit code %d: %s", c.sql, len(c.text),
				len(after), len(want), got.code, got.errOut)
		}
		l.exec(restoreLog)
	}
}

// expectVerdicts checks what "fencegate audit verify FILE" says about an export of newSealedLog, and changed ones.
func (l sealedLog) expectVerdicts(path, whole string) {
	l.t.Helper()
	if found := l.verify(path); found.Present != 9 || found.Head != l.verify().Head {
		l.t.Errorf("the export is %+v, want 9 entries and the head of the log", found)
	}
	lines := strings.SplitAfter(whole, "\n")
	without := func(from, to int) string { return strings.Join(slices.Delete(slices.Clone(lines), from, to), "") }
	for text, want := range map[string]string{
		strings.Replace(whole, `"principal": "p"`, `"principal": "q"`, 1): "entry 1 was changed after seal 1 was made",
		without(4, 7): "seals are missing before the end of the retention: 2 to 2",
		without(0, 4): "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
		if got := strings.Join(l.verify(path).Wrong, "; "); got != want {
			l.t.Errorf("verify found %q, want %q, in %s", got, want, text)
		}
	}
	for text, want := range map[string]string{
		without(0, 1):        "line 3 has the seal 1 of 3 entries, and 2 lines of seal 1 are before it",
		whole[:len(whole)-1]: "the export was cut",
		"{}\n" + whole:       "line 1 is not one of an export",
		without(3, 4):        "line 6 has the seal 2 of 2 entries, and 5 lines",
		// Go's decoder would take the last of these keys, another reader the first.
		strings.Replace(whole, `"entry":`, `"entry":{"principal":"mallory"},"ENTRY":`, 1): "line 1 is not one of an export",
		strings.Replace(whole, `"id":1,`, `"id":9,"id":1,`, 1):                            "line 1 is not one of an export",
		strings.Replace(whole, `"id":1,`, `"id":1,"by":"mallory",`, 1):                    "line 1 is not one of an export",
		strings.Replace(whole, `"id":1,`, `"id": 1,`, 1):                                  "line 1 is not one of an export",
		strings.Replace(whole, "\n", "\r\n", 1):                                           "line 1 is not one of an export",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
		l.fails(exitFailure, want, "audit", "verify", path)
	}
}

// TestAuditFollow checks that an export with --follow writes entries when they are sealed, and ends well.
func TestAuditFollow(t *testing.T) {
	t.Parallel()
	l := newSealedLog(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- runHere(ctx, []string{"audit", "export", "--follow", "--after", "3", "--url", l.url}, strings.NewReader(""), stdout, &stderr)
	}()
	l.seal()
	lines := bufio.NewReader(out)
	for _, want := range []string{`{"seal":4,"id":7,`, `{"seal":4,"at_us":`} {
		if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("it wrote %q (%v), want %s…", line, err, want)
		}
	}
	interrupt()
	if code := <-ended; code != exitOK || stderr.Len() > 0 {
		t.Errorf("it exited with %d and %q", code, &stderr)
	}
}
