package api

// Table is a protected table: its rows can be written only under the fence of their resource.
type Table struct {
	// Table is the name with its schema: public.accounts. Rejections of source "sql" have it as their Key.
	Table string `json:"table"`
	// Template names the resource of a row: accounts/{id}, where id is a column.
	Template string `json:"template"`
	// Mode is enforce, or observe: nothing is rejected, and what would be is recorded.
	Mode        string `json:"mode"`
	ProtectedAt Time   `json:"protected_at"`
	// Problem says what kept rows from being checked, such as a disabled trigger, at CheckedAt; absent: nothing.
	Problem string `json:"problem,omitempty"`
	// CheckedAt is when a gateway looked at the triggers last, some 30 s ago; absent: not yet.
	CheckedAt *Time `json:"checked_at,omitempty"`
	// Rows is an estimate, as of the last vacuum or analyze; absent before the first.
	Rows *int64 `json:"rows,omitempty"`
	// Rejections counts the recorded rejections of the groups that were last seen in the last 24 hours. Those that rolled
	// back their transaction are only counted in the metric fencegate_sql_rejections_total.
	Rejections int64 `json:"rejections"`
}

// Tables is a page of GET /v1/tables, ordered by name.
type Tables struct {
	Tables     []Table `json:"tables"`
	NextCursor string  `json:"next_cursor,omitempty"`
}
