package metrics

import "github.com/fencegate/fencegate/store"

var tableSubject = &subject{
	title: "Protected tables",
	about: "One gateway at a time counts these in the database, and every gateway shows them: take the `max`.",
}

var (
	sqlRejectionsFamily = tableSubject.counter("fencegate_sql_rejections_total",
		"Rejections by SQL, by code: by fence.guard, fence.try_guard and the triggers of protected tables, also those "+
			"whose transaction was rolled back.",
		"`token_required`: a program writes to a protected table and does not call fence.guard; `token_stale`: zombies. "+
			"After a crash of the database's server a count may be up to 32 too high.",
		Label{Name: "code", Values: texts(store.SQLVerdicts...)})
	protectedTablesFamily = tableSubject.gauge("fencegate_protected_tables",
		"Protected tables by mode, as of the inventory.",
		"`observe` only records what `enforce` rejects.",
		Label{Name: "mode", Values: []string{"enforce", "observe"}})
	tableProblemsFamily = tableSubject.gauge("fencegate_protected_tables_with_problems",
		"Protected tables whose rows are not all checked, such as with a disabled trigger, as of the last look "+
			"at each, some 30 s ago.",
		"Not 0: late writes can destroy data there. `fencegate check` and `/v1/tables` name the tables and the problems.")
)

func (r *readings) tables(overview *store.Overview) {
	for verdict, rejections := range overview.Database.RejectedBySQL {
		r.value(sqlRejectionsFamily, float64(rejections), string(verdict))
	}
	if inventory := overview.Inventory; !inventory.At.IsZero() {
		r.value(protectedTablesFamily, float64(inventory.TablesEnforce), "enforce")
		r.value(protectedTablesFamily, float64(inventory.TablesObserve), "observe")
		r.value(tableProblemsFamily, float64(inventory.TablesWithProblems))
	}
}
