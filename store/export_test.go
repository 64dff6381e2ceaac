package store

import "github.com/jackc/pgx/v5"

// ListSQL is the statement that lists the locks of a query, and its arguments.
func ListSQL(query LockQuery) (string, pgx.NamedArgs, error) {
	query, err := query.Check()
	list := lockSelect{query}
	return list.listSQL(), list.args(), err
}
