//go:build unix

package docs_test

// exception is a block that needs something before it runs, or can't run here at all.
type exception struct {
	before    string // commands
	instead   string // commands that do the same here
	elsewhere string // why it does not run here, and what checks it
	twice     bool   // it is run again, at once
}

// exceptions has them by how the document and the first line of the block begin.
var exceptions = map[string]exception{
	"clients/python/README.md":     {elsewhere: "TestPrograms of clients runs it with the installed package"},
	"clients/typescript/README.md": {elsewhere: "TestPrograms of clients runs it with the installed package"},
	"deploy/kubernetes/README.md":  {elsewhere: "needs a cluster; TestProduction of deploy/kubernetes"},
	"docs/sql/guard.md":            {elsewhere: "TestExamples of examples runs it, with each program's drivers"},
	"docs/sql/languages.md":        {elsewhere: "TestWorkersThatFreeze of examples runs the programs"},
	"examples/java/README.md":      {elsewhere: "needs a database by TCP; TestWorkersThatFreeze of examples"},

	"README.md: export PATH":           {twice: true},
	"README.md: select fence.protect(": {before: createAccounts},

	"lockclient/k8slock/README.md: go get": {
		elsewhere: "changes the module of a user; TestElections of lockclient/k8slock runs the code"},
	"docs/api.md: $ curl -s -X PUT": {
		before: psql + " -qAt -o /dev/null -c \"select setval('fence.tokens', 33)\"; fencegate lock acquire job-42 >/dev/null"},

	"docs/backup.md: ": {elsewhere: "needs a server to lose; TestSlow_Drill of internal/test/faults runs its commands"},
	"docs/cli.md: $ cat nightly.sh": {
		elsewhere: "needs a second terminal; TestRunStopsACommandThatHasLostItsLease of cmd/fencegate"},
	"docs/cli.md: $ fencegate lock break nightly": {
		elsewhere: "the second terminal; TestRunStopsACommandThatHasLostItsLease of cmd/fencegate"},

	"docs/other-locks.md: $ cat move.py": {
		before: `python3() { PYTHONPATH=$CLONE/clients/python/src PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$@"; }`},
	"docs/other-locks.md: select fence.protect('invoices', 'invoices/{id}', 'observe')": {
		before: psql + ` -qc "create table invoices (id bigint primary key, state text); insert into invoices values (42, 'new')"`},
	"docs/other-locks.md: $ fencegate fence get jobs/42": {
		before: "fencegate put jobs/42 result x --token 1767344421480.1"},

	"docs/histories.md: fencegate serve": {
		elsewhere: "keeps its file in a directory of the system; TestRecordHistory of cmd/fencegate"},
	"docs/histories.md: bin/fencegate-bench": {
		elsewhere: "the same; TestRecordHistory of cmd/fencegate makes the file, TestLoad of internal/test/bench checks one"},
	"docs/operations.md: docker compose up": {
		elsewhere: "needs Docker; TestComposeServices of deploy/compose"},
	"docs/operations.md: go tool pprof": {
		elsewhere: "takes a profile for 30 s; TestDebugListen of cmd/fencegate"},

	"docs/runbooks/README.md: psql": {before: openTransaction},
	"docs/runbooks/FencegateConnectionsExhausted.md: psql \"$DATABASE_URL\" -c \"sel":   {before: openTransaction},
	"docs/runbooks/FencegateConnectionsExhausted.md: psql \"$DATABASE_URL\" -c \"alt":   {before: createApp},
	"docs/runbooks/FencegateOldSnapshot.md: psql \"$DATABASE_URL\" -c \"select pg_term": {before: openTransaction},
	"docs/runbooks/FencegateOldSnapshot.md: psql \"$DATABASE_URL\" -c \"rollback": {
		elsewhere: "needs max_prepared_transactions; TestOldestSnapshot of store/postgres"},
	"docs/runbooks/FencegateOldSnapshot.md: psql \"$DATABASE_URL\" -c \"select pg_drop": {before: createSlot},
	"docs/runbooks/FencegateDiskFull.md: psql":                                          {before: createSlot},
	"docs/runbooks/FencegateTableProblem.md: psql":                                      {before: createAccounts},
	"docs/runbooks/FencegateWaitsForStandby.md: psql": {
		elsewhere: "changes the server; TestOutages of gateway"},
	"docs/runbooks/FencegateReplicationNotSynchronous.md: psql": {
		elsewhere: "changes the server; TestOutages of gateway"},

	"docs/production.md": {
		elsewhere: "needs servers of its own; TestSlow_Production of docs"},

	"docs/uninstall.md": {
		elsewhere: "needs a server with roles of its own; TestUninstall of docs"},

	"docs/replication.md": {
		elsewhere: "needs two servers; TestReplication of docs"},

	"docs/security.md: $ psql \"": {
		before: psql + ` -qc 'drop role if exists fencegate_gateway'
			OWNER_URL=$DATABASE_URL GATEWAY_URL="host=$PGHOST port=$PGPORT dbname=$PGDATABASE user=fencegate_gateway"`},

	"docs/sql/ten-minutes.md":                          {elsewhere: "is pasted into one psql; TestTenMinutes of docs"},
	"docs/sql/README.md: select fence.protect('public": {before: createAccounts},
	"docs/sql/tables.md: begin;": {before: createAccounts + ` -c "select fence.protect('accounts', 'accounts/{id}')" \
		-c "select setval('fence.tokens', 33)" -c "select fence.acquire('accounts/42', 'worker-1')"`},
	"docs/sql/leases.md: $ psql": {
		before: psql + " -qc 'select fence.unprotect($$jobs$$); drop table jobs' -c \"select setval('fence.tokens', 33)\""},
	"docs/sql/setup.md: $ fencegate migrate": {
		before: createApp},
	"docs/sql/setup.md: app=> ":                    {before: "OWNER=$PGUSER; export PGUSER=app"},
	"docs/sql/setup.md: select fence.allow_names(": {before: "export PGUSER=$OWNER"},
	"docs/sql/incidents.md: $ fencegate rejections": {before: createAccounts + ` -c "insert into accounts values (1, 100)" \
		-c "select fence.protect('accounts', 'accounts/{id}')"
	old=$(` + psql + ` -Atc "select fencing_token from fence.acquire('accounts/1', 'worker-a', 100)"); sleep 0.2
	` + psql + ` -qc "select fence.acquire('accounts/1', 'worker-b')" \
		-c "begin; select fence.set_token($old, 2); update accounts set balance = 0 where id = 1"
	until fencegate rejections --source sql | grep -q worker-a; do sleep 0.1; done`},
	"docs/sql/incidents.md: $ fencegate tables unprotect": {
		before: `(echo "set application_name = 'worker-7'; begin; update accounts set balance = 0 where id = 1;"; sleep 60) |
			` + psql + ` -q &
		until ` + psql + ` -Atc "select state from pg_stat_activity where application_name = 'worker-7'" | grep -q 'idle in'; do
			sleep 0.1; done`},
	"docs/sql/incidents.md: app=> set lock_timeout": {
		before: psql + ` -qc "select fence.protect('accounts', 'accounts/{id}')"`},
	"docs/sql/incidents.md: pg_dump -Fc": {
		elsewhere: "needs a pg_dump of the server's version; TestDumpOfTables of migrations"},
	"docs/sql/setup.md: DIR=$(pg_config": {
		elsewhere: "changes the installation of PostgreSQL; TestExtension of migrations"},
	"docs/sql/setup.md: select cron.schedule": {
		elsewhere: "needs pg_cron; TestSweepAll of store/postgres"},

	"docs/quickstart.md: $ go build": {
		instead: `go build -C "$CLONE" -o "$PWD/shop" ./examples/tutorial`},

	"docs/terraform.md: $ fencegate lock get": {
		before: "fencegate lock acquire terraform/prod/network >/dev/null"},
	"docs/terraform.md: $ curl": {
		elsewhere: "needs Terraform; TestTerraform of cmd/fencegate"},
}

// createApp makes a role, which other documents may have made: roles are those of the server.
const createApp = psql + ` -qc 'do $$ begin create role app login; exception when duplicate_object then null; end $$'`

const createAccounts = psql + ` -qc 'create table accounts (id bigint primary key, balance integer not null);
	insert into accounts values (42, 100)'`

// runbooks is the folder of the runbooks. All of them run in one session.
const runbooks = "docs/runbooks"

// installation is one as in production: the gateway has TLS and asks for keys. What the runbooks tell a reader to set is
// set. A lock is held and waited for.
const installation = `fencegate dev-cert certs >/dev/null
fencegate serve --auth keys --tls-cert certs/server.pem --tls-key certs/server-key.pem
fencegate keys create admin --grant all: --in-database "$DATABASE_URL" | sed -n 's/^key  *//p' >admin.key
export FENCEGATE_URL FENCEGATE_CA_CERT=certs/ca.pem FENCEGATE_TOKEN_FILE=admin.key
unset FENCEGATE_DATABASE_URL
GATEWAY=$FENCEGATE_URL LOCK=jobs/42 PREFIX=jobs NEWEST_TOKEN=0 ROLE=app TABLE=accounts
TEMPLATE='accounts/{id}'
fencegate lock acquire "$LOCK" --ttl 10m >/dev/null
fencegate lock acquire "$LOCK" --wait 10m >/dev/null 2>&1 &
until fencegate waits "$LOCK" | grep -q "$LOCK"; do sleep 0.1; done
`

// openTransaction sets PID to that of a session with an open transaction.
const openTransaction = `psql -X "$DATABASE_URL" -c "begin; set application_name = 'forgotten'; select pg_sleep(600)" >/dev/null 2>&1 &
until PID=$(psql -XAt "$DATABASE_URL" -c "select pid from pg_stat_activity where application_name = 'forgotten'
		and datname = current_database()") && [ "$PID" ]; do sleep 0.1; done
`

const createSlot = `SLOT=gone_$$
psql -XqAt "$DATABASE_URL" -c "select pg_create_physical_replication_slot('$SLOT')" >/dev/null`
