package top

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// pressing returns the view after keys, and whether they ended the program.
func pressing(t *testing.T, text string) (View, bool) {
	t.Helper()
	m := &model{due: time.NewTimer(time.Hour), view: busyView()}
	defer m.due.Stop()
	for i, pressed := range keysOf([]byte(text)) {
		if m.press(pressed) {
			if i < len(keysOf([]byte(text)))-1 {
				t.Errorf("%q ended the program at key %d", text, i)
			}
			return m.view, true
		}
	}
	return m.view, false
}

// Escape leaves one thing at a time, and at last the program. Ctrl-C leaves the program from everywhere.
func TestLeaving(t *testing.T) {
	for text, want := range map[string]bool{
		"q": true, "\x1b": true, "?q": false, "?qq": true, "\r\x1b": false, "\r\x1b\x1b": true, "\r\rq": true,
		"/a\x1b": false, "/a\x1bq": true, "/a\rq": false, "/a\rqq": true, "/q": false, "?\x03": true, "\r\x03": true,
		"/\x03": true, "??": false, "?p": false,
	} {
		if _, quit := pressing(t, text); quit != want {
			t.Errorf("%q: ended %t, want %t", text, quit, want)
		}
	}
}

// What is typed after a slash is the filter, also keys that mean something else elsewhere.
func TestFilter(t *testing.T) {
	for text, want := range map[string]string{
		"/jobs": "jobs", "/jq ?1\r": "jq ?1", "/äöü\x7f\x7f": "ä", "/\x7f": "", "/abc\x15d": "d", "/abc\x1b": "", "/a\x1b[A": "a",
		"/a\r/b": "ab", "/a\b\b\b": "", "/a\tb": "ab",
	} {
		if view, _ := pressing(t, text); view.Filter != want {
			t.Errorf("%q: the filter is %q, want %q", text, view.Filter, want)
		}
	}
	for filter, want := range map[string]int{"": 2, "EVIL": 1, "worker-1": 1, "stale/sup": 1, "nowhere": 0} {
		view := busyView()
		view.Filter = filter
		if rows := tableOf(view, PanelRejections).rows; len(rows) != want {
			t.Errorf("the filter %q lets %d rows through, want %d", filter, len(rows), want)
		}
	}
}

// Enter shows the selected row, of those that the filter lets through.
func TestDetails(t *testing.T) {
	for text, want := range map[string]string{
		"\r": "jobs/42", "j\r": "jobs/\x1b[2Jevil\n", "jjjk\r": "jobs/42", "/evil\r\r": "jobs/\x1b[2Jevil\n", "2j\r": "idle",
		"2jg\r": "jobs/42", "3j\r": "b:8080", "/nowhere\r\r": "", "\r2": "", "\r/": "", "\t\r": "jobs/42",
		"\x1b[6~\r": "jobs/\x1b[2Jevil\n", "?\r": "",
	} {
		view, _ := pressing(t, text)
		shown := ""
		switch item := newestOf(view).(type) {
		case api.Rejection:
			shown = item.Resource
		case api.Lock:
			shown = item.Lock
		case api.OverviewGateway:
			shown = item.Name
		}
		if shown != want {
			t.Errorf("%q shows %q, want %q", text, shown, want)
		}
	}
}
