package checks

import "github.com/jackc/pgx/v5"

// URL returns what is to be found in the connection URL of a database. It returns an error if that can't be parsed.
func URL(databaseURL string) ([]Finding, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	type address struct {
		host string
		port uint16
	}
	hosts := map[address]bool{{config.Host, config.Port}: true}
	for _, other := range config.Fallbacks { // also the same host without TLS
		hosts[address{other.Host, other.Port}] = true
	}
	if len(hosts) == 1 || config.ValidateConnect != nil {
		return nil, nil
	}
	return []Finding{{
		Severity: Warning, Check: "target_session_attrs", Subject: "--database-url",
		Detail: "names several hosts, and not target_session_attrs",
		Advice: "A gateway uses the first host that answers, also if it is a standby, and is not ready then. Add " +
			"target_session_attrs=read-write to the URL.",
	}}, nil
}
