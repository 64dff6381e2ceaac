package guard

// What only the tests need.
var (
	Rejected   = rejected
	Repeatable = repeatable
	Aborted    = aborted
	StateOf    = stateOf
)
