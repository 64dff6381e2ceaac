package top

var keyHelp = [][2]string{
	{"1 2 3, Tab", "the tables: rejections, locks, gateways"},
	{"↑ ↓, j k", "select a row; PageUp, PageDown and g go further"},
	{"Enter", "show the selected row alone, with all that is known; again: back"},
	{"/", "show only rows that have a text in them; Enter keeps the filter, Esc clears it"},
	{"+ -", "more or less time in the small charts"},
	{"p, space", "pause, and continue"},
	{"?, h", "this help"},
	{"q, Esc", "back, and at last quit; Ctrl-C quits at once"},
	{"", ""},
	{"SEEN", "time since the latest write of a rejection, or the latest report of a gateway"},
	{"NEWER", "the token that superseded the one presented"},
	{"LATE", "time from the end of the lease to the latest write under it"},
	{"LEFT", "time to the end of a lease"},
}

// helpLines explain the keys and the columns.
func helpLines(p painter) []string {
	lines := []string{""}
	for _, help := range keyHelp {
		lines = append(lines, "  "+p.paint(bold, fit(help[0], 12, false))+help[1])
	}
	return lines
}
