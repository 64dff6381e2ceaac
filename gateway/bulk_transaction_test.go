package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// transactionLine is a line that is a transaction of one operation.
func transactionLine(t *testing.T, lease api.Lease, sequence int64, op string) string {
	t.Helper()
	return encode(api.TransactionRequest{Fences: []api.WriteToken{writeToken(lease, sequence)}, Ops: ops(t, op)})
}

// A line of a bulk stream may be a transaction. It is decided after the lines before it, and before those after it. A
// refused one uses no number.
func TestTransactionsInBulk(t *testing.T) {
	h := newTables(t, patientDatabase(t), "accounts/1", "other")
	account, other := h.leases[0], h.leases[1]
	line := func(sequence int64, op string) string { return transactionLine(t, account, sequence, op) }
	row := func(sequence, balance int64) string {
		return line(sequence, fmt.Sprintf(`"op":"upsert",%s,"rows":[{"id":1,"balance":%d}],"conflict":["id"],`+
			`"returning":["balance"]`, onAccount, balance))
	}
	lines := []string{
		putLine(account, 1, "k", "1"), row(2, 10), putLine(other, 1, "k", "1"), row(2, 10), row(2, 11), row(3, -1),
		line(3, `"op":"insert",`+onAccount+`,"rows":[{"id":2}]`),
		line(3, `"op":"update",`+onAccount+`,"where":{"id":1},"set":{"balance":12},"expect_rows":2`),
		row(3, 13), putLine(account, 3, "k", "2"), putLine(account, 4, "k", "2"), line(5, `"op":"insert",`+onAccount),
		strings.Replace(row(5, 14), "{", `{"op":"put",`, 1), `{"fences":[]}`, `{"ops":[]}`,
		`{"ops":[]` + strings.Repeat(" ", 1<<20) + `}`, row(5, 15),
	}
	const result = `"results":[{"op":"upsert","resource":"accounts/1","table":"public.accounts"`
	wants := []string{
		`"status":201,"version":1`,
		`{"line":2,"status":200,` + result + `,"rows":1,"returning":[{"balance":10}]}],"replayed":false}`,
		`"status":201,"version":1`,
		`{"line":4,"status":200,` + result + `}],"replayed":true}`,
		`"code":"token_stale"`,
		`"status":422,"code":"constraint_violation","retryable":false,"op":0,"sqlstate":"23514","table":"public.accounts"` +
			`,"constraint":"accounts_balance_check","detail":`,
		`"code":"token_required","retryable":false,"resource":"accounts/2","op":0,"table":"public.accounts"`,
		`"code":"rows_mismatch","retryable":false,"op":0,"table":"public.accounts","rows":1`,
		`"returning":[{"balance":13}]`, `"code":"token_stale"`, `"version":4`,
		`ops[0]: row must be an object`, `only fences and ops`, `there are 0 fences`, `there are 0 fences`,
		`The transaction is over the limit of 1048576 bytes`,
		`"returning":[{"balance":15}]`,
	}
	verdicts, end := h.bulk(t, strings.ReplaceAll(strings.Join(lines, "\n"), "\n\n", "\n"))
	if len(verdicts) != len(wants) || end.End != api.BulkComplete {
		t.Fatalf("there are %d verdicts and the end %s, want %d", len(verdicts), end.End, len(wants))
	}
	for i, verdict := range verdicts {
		if !strings.Contains(verdict.text, wants[i]) {
			t.Errorf("%.300s was answered %s, want %s in it", lines[i], verdict.text, wants[i])
		}
	}
}

// A transaction that can't be decided ends the stream, and no line after it is applied.
func TestUndecidedTransactionInBulk(t *testing.T) {
	database := patientDatabase(t)
	database.LockTimeout = 200 * time.Millisecond
	h := newTables(t, database, "accounts/1")
	insert := transactionLine(t, h.leases[0], 1, `"op":"insert",`+onAccount+`,"row":{"id":1}`) + "\n"
	unlock := h.hold(t, "lock table public.accounts in share mode")
	verdicts, end := h.bulk(t, insert+putLine(h.leases[0], 2, "k", "1"))
	if len(verdicts) != 1 || verdicts[0].Outcome != api.OutcomeNotApplied || end.End != api.BulkUnavailable {
		t.Errorf("the verdicts are %v, and the end %s, want one that is unavailable", verdicts, end.text)
	}
	if end.NextLine != 2 || h.count(t, "select count(*) from fence.records") > 0 {
		t.Errorf("the end is %s, and a line after the transaction was applied", end.text)
	}
	unlock()
}
