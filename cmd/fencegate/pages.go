package main

// pageMax is the most that the gateway gives at once.
const pageMax = 1000

// follow collects pages up to a limit. It requests one row more than that, to know whether there are more.
func follow[T any](
	limit int, next func(cursor string, limit int) ([]T, string, error),
) (items []T, more bool, err error) {
	if limit < 1 {
		return nil, false, usagef("--limit is %d, it must be positive", limit)
	}
	cursor := ""
	for {
		page, following, err := next(cursor, min(limit-len(items)+1, pageMax))
		if err != nil {
			return nil, false, err
		}
		items = append(items, page...)
		switch {
		case len(items) > limit:
			return items[:limit], true, nil
		case following == "" || len(page) == 0:
			return items, false, nil
		}
		cursor = following
	}
}

// listPages lists pages up to a limit, and notes when there are more.
func listPages[T any](
	con *console, limit int, heading []string, row func(T) []string,
	next func(cursor string, limit int) ([]T, string, error),
) error {
	if err := con.format.many(); err != nil {
		return err
	}
	items, more, err := follow(limit, next)
	if err != nil {
		return err
	}
	if more {
		con.note("there are more than %d; --limit lists more", limit)
	}
	return list(con, heading, items, row)
}
