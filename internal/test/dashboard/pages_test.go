//go:build unix

package dashboard

import (
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// shownPage is a page of the dashboard, with texts that it shows of the fixture.
type shownPage struct {
	name, hash, heading string
	shows               []string
}

func lockHash(lock string) string { return "#/locks/" + url.PathEscape(lock) }

var shownPages = []shownPage{
	{"overview", "#/", "Overview", []string{fixtureLock}},
	{"rejections", "#/rejections", "Rejections", []string{fixtureLock, "importer-7f3a", "token_stale", "public.orders"}},
	{"locks", "#/locks", "Locks", []string{
		fixtureLock, "importer-91bc", "index/a", "indexer-1", "reader-2", "held", "5 h", "scheduler-a", "10.0.0.7:80",
	}},
	{"lock", lockHash(fixtureLock), fixtureLock, []string{
		"importer-91bc", "importer-7f3a does not answer", "row/2", "importer-c0de", "superseded", "5 h",
	}},
	{"owner", "#/owners/importer-c0de", "importer-c0de", []string{"Not holding any lock", fixtureLock, "importer-91bc"}},
	{"sessions", "#/sessions", "Sessions", []string{"indexer-1", "live", "5 h", `{"host":"a7"}`}},
	{"tables", "#/tables", "Tables", []string{
		"public.accounts", "accounts/{id}", "120", "in place", "observe", "guarded", "free",
		"fencegate_update on public.ledger is disabled",
		"public.invoices is another table now, which is not protected: select fence.protect('public.invoices', ",
		"token_required", "_shop", "tenants/7",
	}},
	{"policies", "#/policies", "Policies", []string{"reports", "same_token", "live lease required"}},
	{"keys", "#/keys", "Keys", []string{"billing", "lock, write on accounts/eu", "observe on every name", "never"}},
	{"audit", "#/audit", "Audit", []string{
		"lease broken", "importer-7f3a does not answer", "policy set", "table protected",
	}},
	{"api", "#/api/listLocks", "API", []string{"/v1/locks/{lock}/acquire", "Only locks in this state", "array of Lock"}},
}

// show opens a page and returns when it shows its texts.
func (p *tab) show(page shownPage) {
	p.t.Helper()
	p.open(page.hash)
	p.waitText("main h1", page.heading)
	for _, text := range page.shows {
		p.waitText("main", text)
	}
}

// TestPages checks the content, width, structure, colours, accessibility and title of every page, of the drawer of a
// rejection and of a value on every device. A wrong address shows an error with a link to the overview.
func TestPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, as := range []device{desktop, desktopDark, phone} {
		p := openTab(t, f.gateway, as)
		for _, page := range shownPages {
			p.run(as.name+" "+page.name, func() {
				p.show(page)
				p.waitLoaded()
				p.checkWidth()
				p.checkStructure()
				p.checkColours(as.dark)
				title := eval[string](p, "document.title")
				if !strings.Contains(title, "fencegate") || !strings.Contains(title, page.heading) {
					p.t.Errorf("the title is %q, want it to contain fencegate and %q", title, page.heading)
				}
				p.checkAxe()
			})
		}
		p.run(as.name+" drawer", func() {
			p.open("#/rejections")
			p.openDrawerOf("importer-7f3a")
			p.checkAxe()
			p.checkColours(as.dark)
			p.checkWidth()
		})
		p.run(as.name+" value", func() {
			p.open(lockHash(fixtureLock))
			p.openValue("Grace")
			p.checkAxe()
		})
		p.run(as.name+" wrong address", func() {
			p.open("#/nowhere")
			p.waitText("main h1", "Not found")
			p.click("main a[href='#/']")
			p.waitText("main h1", "Overview")
		})
	}
}

// TestEmptyPages checks the width, structure and accessibility of every page of an empty database. It copies the
// command that the empty policies page shows, and runs it: it sets a policy, which the page then shows. The page of keys
// begins with the key of an administrator. A page has its heading before the gateway has answered.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	var p *tab
	for _, as := range []device{phone, desktop} {
		p = openTab(t, g, as)
		p.allow("404") // of the lock
		for _, page := range shownPages {
			p.run(as.name+" "+page.name, func() {
				p.show(shownPage{hash: page.hash, heading: page.heading})
				p.waitLoaded()
				p.checkWidth()
				p.checkStructure()
				p.checkAxe()
			})
		}
	}
	p.open("#/policies")
	p.waitText("main pre", "fencegate policy set")
	p.clickText("main button", "Copy")
	p.waitText("main .command", "Copied")
	hint := eval[string](p, `document.querySelector("main pre").textContent`)
	program := strings.Replace(hint, "fencegate ", process.BuildChecked(t)+" ", 1)
	output, err := exec.Command("sh", "-c", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", hint, err, output)
	}
	p.open("#/")
	p.waitText("main h1", "Overview")
	p.open("#/policies")
	p.waitText("main", "imports")
	p.open("#/keys")
	p.waitText("main ol li:first-child", "Create a key for yourself that may do all:")

	p.inject(`window.fetch = () => new Promise(() => {})`) // a gateway under load answers late
	p.open("?again#/locks")
	p.waitText("main h1", "Locks")
}

// TestLockPages runs the tests of single locks. Each has locks of its own, so they share a gateway.
func TestLockPages(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	for name, test := range map[string]func(*testing.T, *gateway){
		"consistent": testLockPageIsConsistent, "follows its lock": testLockPageFollowsItsLock, "values": testRecordValues,
		"break": testBreakRequiresReason, "break by keyboard": testKeyboardBreaksALock, "JavaScript": testJavaScriptClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, g)
		})
	}
}

// testLockPageIsConsistent checks that a lock and its fence are of one answer, and that the time left of a lease never
// exceeds its TTL.
func testLockPageIsConsistent(t *testing.T, g *gateway) {
	lease := g.hold(t, "jobs/consistent", "an-owner")
	g.sql(t, `update fence.leases set ttl_ms = 365, expires_at = clock_timestamp() + interval '1 hour'
		where lock = 'jobs/consistent'`)
	p := openTab(t, g, desktop)
	p.open(lockHash("jobs/consistent"))
	p.waitText("main", "only token "+strconv.FormatInt(lease.FencingToken, 10)+" may write")
	if n := eval[int](p, `performance.getEntriesByType("resource")
		.filter((entry) => entry.name.endsWith("/fence")).length`); n != 0 {
		t.Errorf("the page fetched the fence separately %d times, want never", n)
	}
	if text := p.text("main"); !strings.Contains(text, "<1 s of 365 ms") {
		t.Errorf("want a time left of <1 s of 365 ms, the page shows: %s", text)
	}
}
