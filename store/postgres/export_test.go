package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// ListSQL is the statement that lists the locks of a query, and its arguments.
func ListSQL(query store.LockQuery) (string, pgx.NamedArgs, error) {
	query, err := query.Check()
	list := lockSelect{query}
	return list.listSQL(), list.args(), err
}
