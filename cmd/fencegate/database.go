package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/logging"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store/postgres"
)

// databaseFlags name the database of a command.
type databaseFlags struct {
	DatabaseURL string `help:"PostgreSQL to use, as a URL or key=value string." env:"FENCEGATE_DATABASE_URL" placeholder:"URL"`
}

// connect calls use with a connection to the database.
func (f databaseFlags) connect(ctx context.Context, con *console, use func(conn *pgx.Conn) error) error {
	return connect(ctx, con, "--database-url", f.DatabaseURL, use)
}

// servedFlags name the database of a gateway, which may be a private one.
type servedFlags struct {
	databaseFlags
	DataDir string `help:"Directory of a private PostgreSQL, which is run where no --database-url is given. Default: fencegate in the user's state directory." env:"FENCEGATE_DATA_DIR" type:"path" placeholder:"DIR"`
}

// database is the one that was named, or a private cluster that ends with it.
type database struct {
	url     string
	cluster *embeddedpg.Cluster // nil where one was named
}

func (f servedFlags) open(ctx context.Context, logger *slog.Logger) (*database, error) {
	if f.DatabaseURL != "" {
		if err := checkDatabaseURL("--database-url", f.DatabaseURL); err != nil {
			return nil, err
		}
		logger.Info("the database is named", "database", place(f.DatabaseURL))
		return &database{url: f.DatabaseURL}, nil
	}
	cluster, err := embeddedpg.Start(ctx, embeddedpg.Config{DataDir: f.DataDir, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &database{url: cluster.URL(), cluster: cluster}, nil
}

// openDatabase opens the database of the gateway. One that is read-only makes none.
func (c *serveCmd) openDatabase(ctx context.Context, logger *slog.Logger) (*database, error) {
	if c.ReadOnly {
		if err := named("--database-url", c.DatabaseURL); err != nil {
			return nil, err
		}
	}
	return c.open(ctx, logger)
}

// place returns the name of a database and its hosts, without anything secret. The URL can be read.
func place(url string) string {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return "?"
	}
	hosts := []string{fmt.Sprintf("%s:%d", config.Host, config.Port)}
	for _, other := range config.Fallbacks { // also the same host without TLS
		hosts = append(hosts, fmt.Sprintf("%s:%d", other.Host, other.Port))
	}
	return printable.Text(cmp.Or(config.Database, config.User) + " at " + strings.Join(slices.Compact(hosts), ", "))
}

// named returns an error unless a flag has the URL of a database. A command that is not a gateway or a demo never runs a
// private PostgreSQL: it would answer for another database than the gateway's.
func named(flag, url string) error {
	if url == "" {
		variable := "FENCEGATE_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(flag, "--"), "-", "_"))
		return usagef("name the database by %s or %s. \"fencegate dev\" and \"serve\" show the URL of a private one", flag,
			variable)
	}
	return checkDatabaseURL(flag, url)
}

// useDatabase is named, and notes which database that is.
func (c *console) useDatabase(flag, url string) error {
	if err := named(flag, url); err != nil {
		return err
	}
	c.note("database %s", place(url))
	return nil
}

// connect calls use with a connection to the database that a flag names. It ends with ctx.
func connect(ctx context.Context, con *console, flag, url string, use func(conn *pgx.Conn) error) error {
	if err := con.useDatabase(flag, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return noDatabase(flag, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err = use(conn); err != nil && (conn.IsClosed() || ctx.Err() != nil) {
		return &runError{exitUnavailable, err}
	}
	return err
}

// checkDatabaseURL returns a usage error for a URL that can't be read, and nil for none. The error shows nothing of the URL,
// in which the end of the password is not certain. A password with an unescaped @ or / would be taken for the name of a
// host or a database.
func checkDatabaseURL(flag, url string) error {
	if url == "" {
		return nil
	}
	const likeThis = "\nA URL is like postgres://USER:PASSWORD@HOST:5432/DATABASE. In the password, write %%40 for @, " +
		"%%2F for / and %%25 for %%"
	address, _, _ := strings.Cut(url, "?")
	if strings.Contains(address, "://") && strings.Count(address, "@") > 1 {
		return usagef("%s: there is more than one @"+likeThis, flag)
	}
	if _, err := pgx.ParseConfig(url); err != nil {
		text := err.Error() // cannot parse `URL`: SUBJECT (REASON: "PART OF THE URL")
		why, _, _ := strings.Cut(text[strings.LastIndexAny(text, "`(")+1:], `: "`)
		return usagef("%s: %s"+likeThis, flag, strings.Trim(why, ": )"))
	}
	return nil
}

// noDatabase returns the error of a connection to the database that a flag names, with what to do about it.
func noDatabase(flag string, err error) error {
	if errors.Is(err, migrations.ErrNotMigrated) {
		return fmt.Errorf("%w; run `fencegate migrate`", migrations.ErrNotMigrated)
	}
	code, next := exitUnavailable, fmt.Sprintf("Is PostgreSQL running there, and is %s right?", flag)
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok {
		next = "" // PostgreSQL, or a pooler before it, says what is wrong
		switch failed.Code {
		case "08P01": // protocol_violation: PgBouncer's, of settings that it does not know
			next = fmt.Sprintf("%s leads through a pooler: name the database itself by --listen-url, too.", flag)
		case insufficientPrivilege:
			code, next = exitNotAllowed, fmt.Sprintf("The role in %s lacks a right: name that of the gateway "+
				"(`fencegate migrate --gateway-role NAME`).", flag)
		case "28P01": // invalid_password
			next = fmt.Sprintf("The password of the role is another one, or there is no such role: is %s right?", flag)
		case "28000": // invalid_authorization_specification
			next = fmt.Sprintf("Create the role (createuser), admit it in pg_hba.conf, or name another in %s.", flag)
		case "3D000": // invalid_catalog_name
			next = fmt.Sprintf("Create the database (createdb), or name another in %s.", flag)
		}
	}
	return &runError{code, errors.New(strings.TrimSpace(notConnected(err) + "\n" + next))}
}

// notConnected returns the error of a connection without what is no cause. Without sslmode, each address is tried twice:
// with TLS, and without.
func notConnected(err error) string {
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = failed
	}
	lines := slices.Compact(strings.Split(err.Error(), "\n"))
	causes := slices.DeleteFunc(slices.Clone(lines[:len(lines)-1]), func(line string) bool {
		return strings.HasSuffix(line, "server refused TLS connection")
	})
	return strings.Join(append(causes, lines[len(lines)-1]), "\n")
}

// ended is closed when a private cluster ended by itself; it is nil, and never ready, where there is none.
func (d *database) ended() <-chan struct{} {
	if d.cluster == nil {
		return nil
	}
	return d.cluster.Done()
}

const (
	// databaseTimeout is how long a database that is only just starting is waited for.
	databaseTimeout = 15 * time.Second
	// databaseLogEvery is the least time between two log lines about that.
	databaseLogEvery = 5 * time.Second
)

// awaitDatabase waits until the database answers, for timeout at most (0: as long as it takes), and logs that it does.
func awaitDatabase(ctx context.Context, st *postgres.Store, timeout time.Duration, logger *slog.Logger) error {
	var logged time.Time
	waiting := func(err error) {
		if time.Since(logged) > databaseLogEvery {
			logged = time.Now()
			logger.Warn("waiting for the database", "error", notConnected(err))
		}
	}
	if err := st.Await(ctx, timeout, waiting); err != nil {
		return noDatabase("--database-url", err)
	}
	return nil
}

// prepare waits for the database, and migrates it if it is to be. A gateway that is read-only needs a schema that it can
// serve, and never changes it.
func (c *serveCmd) prepare(ctx context.Context, st *postgres.Store, logger *slog.Logger) error {
	if err := awaitDatabase(ctx, st, c.DatabaseTimeout, logger); err != nil {
		return err
	}
	if err := st.CheckSessions(ctx); err != nil {
		return err
	}
	if c.Migrate && !c.ReadOnly {
		did, err := st.MigrateBy(ctx, migrations.Script{})
		if err != nil {
			return err
		}
		logger.Info("migrated", "result", did)
	}
	err := st.CompareSchema(ctx)
	if skew, ok := errors.AsType[*migrations.SkewError](err); ok && skew.Serves {
		logger.Warn("the schema is of another version; what needs newer functions fails until it is migrated", "error", err)
	} else if c.ReadOnly {
		return err
	}
	return nil
}

const clusterStopTimeout = 30 * time.Second

func (d *database) close() error {
	if d.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterStopTimeout)
	defer cancel()
	return d.cluster.Stop(ctx)
}

// logFlags say what is logged, and how.
type logFlags struct {
	LogLevel  string `help:"What to log at least: debug (every request), info, warn or error." env:"FENCEGATE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error"`
	LogFormat string `help:"json or text." env:"FENCEGATE_LOG_FORMAT" default:"text" enum:"json,text"`
}

func (f logFlags) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // one of the enum
	return logging.New(out, level, f.LogFormat == "json")
}

type migrateCmd struct {
	databaseFlags
	logFlags
	GatewayRole    []string `help:"Give this role the rights that gateways need. It then changes nothing but by fencegate's functions. Can be repeated." sep:"none" placeholder:"NAME"`
	AppRole        []string `help:"Give this role of an application the rights to guard transactions and to lease locks by SQL. Can be repeated." sep:"none" placeholder:"NAME"`
	AppNames       []string `help:"Let the roles of --app-role use this name and all names below it by SQL, and no names that no --app-names gave them. Without it, a new role may use all names. Can be repeated." sep:"none" placeholder:"PREFIX"`
	TableOwnerRole []string `help:"Give this role the same rights, and the right to protect the tables that it owns. Can be repeated." sep:"none" placeholder:"NAME"`
	Print          bool     `help:"Write the SQL to standard output instead, for another tool that runs it in one transaction. No database is needed."`
	From           int      `help:"Print what upgrades a schema of this version. 0: what makes a new one." placeholder:"VERSION"`
	Extension      string   `help:"Write the files of the extension fencegate to this directory instead, for create extension and alter extension … update. No database is needed." type:"existingdir" placeholder:"DIR"`
	Distribute     string   `help:"Make the database, which is the coordinator of Citus, that of a cluster: each name is at the node of the rows of this distributed table whose column has its first segment. The names that are there move. See docs/cluster.md." placeholder:"TABLE"`
	TokensAbove    *int64   `help:"Issue tokens above this one, and above all that another database can have issued until now: where this database takes the place of one that is lost or was deleted." placeholder:"TOKEN"`
}

// Help is shown by --help.
func (migrateCmd) Help() string {
	return "Brings the schema \"fence\" of the database up to this program's and exits. Safe to run any number of " +
		"times, also beside gateways that start. The roles that are named must exist. They keep their rights in later migrations; " +
		"name them again after an upgrade, for functions that it adds."
}

// Run migrates.
func (c *migrateCmd) Run(ctx context.Context, con *console) error {
	roles := migrations.Roles{
		Gateway: c.GatewayRole, App: c.AppRole, AppNames: c.AppNames, TableOwner: c.TableOwnerRole,
	}
	script := migrations.Script{Version: c.From, TokensAbove: c.TokensAbove, Roles: roles}
	switch {
	case len(c.AppNames) > 0 && len(c.AppRole) == 0:
		return usagef("--app-names needs --app-role")
	case c.Extension != "":
		return migrations.WriteExtension(c.Extension)
	case c.Print:
		return script.Print(con.out)
	case c.From != 0:
		return usagef("--from is for --print: without it, the version is read from the database")
	}
	if err := con.useDatabase("--database-url", c.DatabaseURL); err != nil {
		return err
	}
	st, err := postgres.Open(ctx, postgres.Config{DatabaseURL: c.DatabaseURL})
	if err != nil {
		return err
	}
	defer st.Close()
	if err := awaitDatabase(ctx, st, databaseTimeout, c.logger(con.err)); err != nil {
		return err
	}
	did, err := st.MigrateBy(ctx, script)
	if err != nil {
		return err
	}
	if err := st.Grant(ctx, roles); err != nil {
		return err
	}
	if err := c.warn(ctx, con.err); err != nil {
		return err
	}
	if _, err = fmt.Fprintln(con.out, did); err != nil || c.Distribute == "" {
		return err
	}
	return c.distribute(ctx, con, st, roles)
}

// warn writes by what the roles of applications could get past the fence.
func (c *migrateCmd) warn(ctx context.Context, to io.Writer) (err error) {
	if len(c.AppRole) == 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return noDatabase("--database-url", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	findings, err := checks.Run(ctx, conn, checks.OfRoles, c.AppRole...)
	for _, f := range findings {
		if f.Severity == "" {
			continue
		}
		_, _ = fmt.Fprintf(to, "warning: %s %s. %s\n", printable.Text(f.Subject), printable.Text(f.Detail), f.Advice)
	}
	return err
}

type checkCmd struct {
	databaseFlags
	outputFlag

	Rows       bool   `help:"Read all fences, leases and records, too, as after a restore: whether they fit together, and the token sequence."`
	PatroniURL string `help:"The REST API of a node of Patroni, to check its configuration, too." env:"FENCEGATE_PATRONI_URL" placeholder:"URL"`

	Timeout time.Duration `help:"How long all checks may take." default:"1m"`
}

// Help is shown by --help.
func (checkCmd) Help() string {
	return "Reads the catalog, changes nothing, and shows a line for each check, the worst first: of protected tables, roles, " +
		"the connection, replication, backups and gateways. What the role may not see is unknown. " +
		"Run it as the role of the gateway. Exits 1 if something is wrong; warnings exit 0."
}

// Run checks the database.
func (c *checkCmd) Run(ctx context.Context, con *console) error {
	if c.Timeout <= 0 {
		return usagef("--timeout is %s, it must be positive", c.Timeout)
	}
	if err := con.format.many(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.connect(ctx, con, func(conn *pgx.Conn) error {
		err := migrations.Compare(ctx, conn)
		if skew, ok := errors.AsType[*migrations.SkewError](err); err != nil && (!ok || !skew.Serves) {
			if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == insufficientPrivilege {
				return fmt.Errorf("%w\nRun it as the role of the gateway", err)
			}
			return err
		}
		findings, err := c.find(ctx, conn, err)
		if err != nil {
			return err
		}
		return con.findings(checks.WorstFirst(findings))
	})
}

// find runs the checks of the schema, which may be of another version, of the database, of its URL, and of Patroni.
func (c *checkCmd) find(ctx context.Context, conn *pgx.Conn, skew error) ([]checks.Finding, error) {
	ofSchema, err := checks.Schema(ctx, conn, skew)
	if err != nil {
		return nil, err
	}
	ofDatabase, err := checks.Run(ctx, conn, checks.Of(c.Rows))
	if err != nil {
		return nil, err
	}
	ofURL, err := checks.URL(ctx, conn, c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	ofPatroni := []checks.Finding{checks.NoPatroni()}
	if c.PatroniURL != "" {
		if ofPatroni, err = checks.Patroni(ctx, http.DefaultClient, c.PatroniURL); err != nil {
			return nil, fmt.Errorf("--patroni-url: %w", err)
		}
	}
	ofCluster, err := c.findInCluster(ctx, conn)
	return slices.Concat(ofSchema, ofDatabase, ofURL, ofPatroni, ofCluster), err
}

// findInCluster runs the checks of the nodes, if the database is the coordinator of a cluster.
func (c *checkCmd) findInCluster(ctx context.Context, conn *pgx.Conn) ([]checks.Finding, error) {
	var coordinates bool
	err := conn.QueryRow(ctx, "select to_regprocedure('fencegate.placements()') is not null").Scan(&coordinates)
	if err != nil || !coordinates {
		return nil, err
	}
	rows, _ := conn.Query(ctx, "select distinct node, address from fencegate.placements() order by address")
	nodes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (node checks.Node, err error) {
		return node, row.Scan(&node.Name, &node.Address)
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, node := range nodes {
			if node.Conn != nil {
				_ = node.Conn.Close(context.WithoutCancel(ctx))
			}
		}
	}()
	for i := range nodes {
		nodes[i].Conn, nodes[i].Failed = connectAt(ctx, c.DatabaseURL, nodes[i].Address)
	}
	return checks.Cluster(ctx, checks.Node{Conn: conn}, nodes, checks.Of(c.Rows))
}
