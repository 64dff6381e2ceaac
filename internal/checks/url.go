package checks

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
)

// Schema returns what is to be found of a schema that can be served, by the error of migrations.Compare.
func Schema(skew error) Finding {
	if skew == nil {
		return ofSchema.finding("", "")
	}
	return ofSchema.finding("fence", skew.Error())
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
	tls.Cure = better(config, databaseURL, hosts, "sslmode", "verify-full", "sslrootcert", "/etc/fencegate/ca.pem")
	reach := ofHosts.finding("", fmt.Sprintf("hosts: %d, connected standbys: %d", len(hosts), standbys))
	switch {
	case len(hosts) > 1 && config.ValidateConnect == nil:
		reach = ofHosts.finding("--database-url", "names several hosts, and not target_session_attrs")
	case len(hosts) == 1 && standbys > 0:
		reach = ofHosts.finding("--database-url", fmt.Sprintf("names one host, and %d standbys are connected", standbys))
		hosts = append(hosts, "STANDBY")
	}
	reach.Cure = better(config, databaseURL, hosts, "target_session_attrs", "read-write")
	return []Finding{reach, tls}, nil
}

// better returns the flag for the database of a URL with other hosts and settings, and without passwords.
func better(config *pgx.ConnConfig, databaseURL string, hosts []string, settings ...string) string {
	query := url.Values{}
	if parsed, err := url.Parse(databaseURL); err == nil && parsed.Scheme != "" {
		query = parsed.Query()
	}
	for _, known := range []string{"host", "port", "user", "dbname", "password", "sslpassword"} {
		query.Del(known)
	}
	for i := 0; i < len(settings); i += 2 {
		query.Set(settings[i], settings[i+1])
	}
	return "--database-url '" + (&url.URL{
		Scheme: "postgres", User: url.User(config.User), Host: strings.Join(hosts, ","), Path: "/" + config.Database,
		RawQuery: strings.ReplaceAll(query.Encode(), "%2F", "/"),
	}).String() + "'"
}
