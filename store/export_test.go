package store

import "github.com/jackc/pgx/v5"

// ListSQL is the statement that lists the locks of a query, and its arguments.
func ListSQL(query LockQuery) (string, pgx.NamedArgs, error) {
	query, err := query.check()
	return query.listSQL(), query.args(), err
}
