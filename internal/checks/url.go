package checks

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
)

var (
	ofHosts = Check{
		Name: "target_session_attrs", Severity: Warning,
		Advice: "Without all hosts, a gateway does not find the primary after a failover. Without the setting, it uses the " +
			"first host that answers, also if it is a standby, and is not ready then.",
	}
	ofTLS = Check{
		Name: "sslmode", Severity: Warning,
		Advice: "Only verify-full shows that the server is the one of that name: with less, another one can answer in its " +
			"place, and reads the password, or changes what is sent.",
		Sound: "each host is reached by a Unix socket, or with a certificate that is verified",
	}
	ofSchema = Check{
		Name: "schema", Severity: Warning,
		Advice: "Gateways serve, and what needs newer functions fails until it is migrated.",
		Cure:   "fencegate migrate --database-url OWNER_URL",
		Sound:  "is of this program",
	}
	ofObjects = Check{
		Name: "schema_changed", Severity: Error,
		Advice: "Somebody has changed what decides about writes and grants. Find out who. The cure makes functions and views " +
			"again. To make a missing index, constraint or column, run its definition, as migrations/001_schema.sql has it.",
		Cure:  "fencegate migrate --print --from VERSION | psql -1 -v ON_ERROR_STOP=1 OWNER_URL",
		Sound: "all functions, views, tables and indexes are as this program makes them",
	}
	ofAddedObjects = Check{
		Name: "schema_added", Severity: Notice,
		Advice: "An upgrade may collide with it, and drop schema would drop it: keep what is yours in a schema of yours, as " +
			"far as that is possible.",
		Sound: "the schema fence has nothing else",
	}
)

// Schema returns what is to be found of the schema to which conn is connected. skew is the error of migrations.Compare:
// it may be of another version that can be served. It returns an error of the database.
func Schema(ctx context.Context, conn *pgx.Conn, skew error) ([]Finding, error) {
	if skew != nil {
		return []Finding{ofSchema.finding("fence", skew.Error())}, nil
	}
	differences, err := migrations.Differences(ctx, conn)
	if err != nil {
		return nil, err
	}
	var changed, added []Finding
	for _, d := range differences {
		if d.Harmless {
			added = append(added, ofAddedObjects.finding(d.Object, d.Detail))
		} else {
			changed = append(changed, ofObjects.finding(d.Object, d.Detail))
		}
	}
	if len(changed) == 0 {
		changed = append(changed, ofObjects.finding("", ""))
	}
	if len(added) == 0 {
		added = append(added, ofAddedObjects.finding("", ""))
	}
	return slices.Concat([]Finding{ofSchema.finding("", "")}, changed, added), nil
}

// URL returns what is to be found in the connection URL of a database, to which conn is connected. It returns an error
// if that can't be parsed, or of the database.
func URL(ctx context.Context, conn *pgx.Conn, databaseURL string) ([]Finding, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	var standbys int
	if err := conn.QueryRow(ctx, "select count(*) from "+standbysSQL).Scan(&standbys); err != nil {
		return nil, err
	}
	tls := ofTLS.finding("", "")
	var hosts []string
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	for _, h := range append([]*pgconn.FallbackConfig{first}, config.Fallbacks...) { // also the same host without TLS
		host := h.Host
		if strings.HasPrefix(host, "/") {
			host = "HOST" // for a socket there is no such URL
		}
		hosts = append(hosts, net.JoinHostPort(host, strconv.Itoa(int(h.Port))))
		switch {
		case strings.HasPrefix(h.Host, "/"):
		case h.TLSConfig == nil:
			tls = ofTLS.finding("--database-url", h.Host+" may be reached without TLS")
		case h.TLSConfig.InsecureSkipVerify && tls.State == OK:
			tls = ofTLS.finding("--database-url", "the name in the certificate of "+h.Host+" is not verified")
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	tls.Cure = better(config, databaseURL, hosts, url.Values{
		"sslmode": {"verify-full"}, "sslrootcert": {"/etc/fencegate/ca.pem"},
	})
	reach := ofHosts.finding("", fmt.Sprintf("hosts: %d, connected standbys: %d", len(hosts), standbys))
	switch {
	case len(hosts) > 1 && config.ValidateConnect == nil:
		reach = ofHosts.finding("--database-url", "names several hosts, and not target_session_attrs")
	case len(hosts) == 1 && standbys > 0:
		reach = ofHosts.finding("--database-url", fmt.Sprintf("names one host, and %d standbys are connected", standbys))
		hosts = append(hosts, "STANDBY")
	}
	reach.Cure = better(config, databaseURL, hosts, url.Values{"target_session_attrs": {"read-write"}})
	return []Finding{reach, tls}, nil
}

// better returns the flag for the database of a URL with other hosts and settings, and without passwords.
func better(config *pgx.ConnConfig, databaseURL string, hosts []string, settings url.Values) string {
	query := url.Values{}
	if parsed, err := url.Parse(databaseURL); err == nil && parsed.Scheme != "" {
		query = parsed.Query()
	}
	for _, known := range []string{"host", "port", "user", "dbname", "password", "sslpassword"} {
		query.Del(known)
	}
	maps.Copy(query, settings)
	return "--database-url '" + (&url.URL{
		Scheme: "postgres", User: url.User(config.User), Host: strings.Join(hosts, ","), Path: "/" + config.Database,
		RawQuery: strings.ReplaceAll(query.Encode(), "%2F", "/"),
	}).String() + "'"
}
