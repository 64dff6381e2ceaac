package guard

// What only the tests need.
var (
	Repeatable = repeatable
	Aborted    = aborted
	StateOf    = stateOf
)
