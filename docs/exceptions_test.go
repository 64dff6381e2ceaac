package docs_test

// exception is a block that needs something before it runs, or can't run here at all.
type exception struct {
	before    string // commands
	instead   string // commands that do the same here
	elsewhere string // why it does not run here, and what checks it
}

// exceptions has them by document and first line of the block, or by document alone for all blocks of it.
var exceptions = map[string]exception{
	"clients/python/README.md":     {elsewhere: "TestQuickStarts of clients runs it with the installed package"},
	"clients/typescript/README.md": {elsewhere: "TestQuickStarts of clients runs it with the installed package"},
	"deploy/kubernetes/README.md":  {elsewhere: "needs a cluster; the chart has tests of its own"},
	"docs/sql-clients.md":          {elsewhere: "TestExamples of examples runs it, with each program's drivers"},

	"README.md: select fence.protect('public.accounts', 'accounts/{id}');               -- once: a fence for each row": {
		before: createAccounts},
	"README.md: fencegate migrate   # the database of FENCEGATE_DATABASE_URL": {
		before: "fencegate dev-cert certs >/dev/null; cp certs/server.pem tls.crt; cp certs/server-key.pem tls.key"},

	"lockclient/k8slock/README.md: go get github.com/fencegate/fencegate/lockclient/k8slock": {
		elsewhere: "changes the module of a user"},
	"docs/api.md: $ curl -s -X PUT -H 'Fencing-Token: 34.1' -H 'Content-Type: text/plain' -d 'half a report' \\": {
		before: psql + " -qAt -o /dev/null -c \"select setval('fence.tokens', 33)\"; fencegate lock acquire job-42 >/dev/null"},

	"docs/cli.md: $ cat nightly.sh": {
		elsewhere: "needs a second terminal; TestRunStopsACommandThatHasLostItsLease of cmd/fencegate"},
	`docs/cli.md: $ fencegate lock break nightly --reason "the host is gone, they say"`: {
		elsewhere: "the second terminal"},

	"docs/external-locks.md: $ fencegate fence get jobs/42": {
		before: "fencegate put jobs/42 result x --token 1767344421480.1"},

	"docs/operations.md: docker compose up --build                    # the API and fencegate's dashboard on http://127.0.0.1:8080": {
		elsewhere: "needs Docker; TestComposeServices of deploy"},
	"docs/operations.md: go tool pprof -top 'http://127.0.0.1:6060/debug/pprof/profile?seconds=30'          # CPU": {
		elsewhere: "takes a profile for 30 s; the tests of serve_debug in cmd/fencegate"},

	"docs/production.md: fencegate load --clients 100 --duration 10m": {elsewhere: "takes 10 minutes; TestLoadFindsNoFault of cmd/fencegate"},
	`docs/production.md: curl -sf "$FENCEGATE_URL/metrics" | grep fencegate_database_up`: {
		before: "FENCEGATE_URL=$OPEN_URL"},
	`docs/production.md: fencegate check --database-url "$DATABASE_URL"`: {
		elsewhere: "PostgreSQL runs without fsync here, which check reports; TestCheck of cmd/fencegate"},
	`docs/production.md: fencegate migrate --database-url "$DATABASE_URL" --gateway-role fencegate_gateway`: {
		before: psql + " -qc 'drop role if exists fencegate_gateway' -c 'create role fencegate_gateway login'"},
	`docs/production.md: $ fencegate put production/check x 1 --token 1 2>/dev/null; echo "exit code $?"`: {
		before: "for i in 1 2; do fencegate lock acquire production/check --ttl 100ms --wait 10s >/dev/null; done"},

	"docs/scaling.md: fencegate serve --database-url \"$WEST\" --names eu,us": {
		before: "WEST=$DATABASE_URL EAST=$DATABASE_URL"},
	"docs/scaling.md: $ fencegate lock break us/job --url http://west:8081 --reason 'us moves'": {
		elsewhere: "needs two fleets; TestFleets of deploy"},
	`docs/scaling.md: $ deploy/fleets/move-prefix "$WEST_OWNER" "$EAST_OWNER" us 7`: {
		elsewhere: "needs two fleets; TestFleets of deploy"},

	"docs/security.md: $ psql \"$OWNER_URL\" -c 'create role fencegate_gateway login; grant pg_read_all_stats to fencegate_gateway'": {
		before: psql + ` -qc 'drop role if exists fencegate_gateway'
			OWNER_URL=$DATABASE_URL GATEWAY_URL="host=$PGHOST port=$PGPORT dbname=$PGDATABASE user=fencegate_gateway"`},

	"docs/sql.md: create table accounts (id bigint primary key, balance integer not null);": {
		before: psql + " -qc 'select fence.unprotect($$accounts$$); drop table accounts'"},
	"docs/sql.md: select fence.protect('public.accounts', 'accounts/{id}');    -- once, as the table's owner": {
		before: createAccounts},
	`docs/sql.md: $ fencegate migrate --database-url "$DATABASE_URL" --app-role app`: {
		before: psql + " -qc 'drop role if exists app' -c 'create role app login'"},
	"docs/sql.md: app=> select * from fence.acquire('job-42', 'worker-1', 600000, metadata => '{\"host\": \"a\"}') \\gx": {
		before: `fencegate migrate --database-url "$DATABASE_URL" --app-role app; export PGUSER=app`},

	"docs/tutorial.md: $ go build -o shop ./examples/tutorial": {
		instead: `go build -C "$CLONE" -o "$PWD/shop" ./examples/tutorial`},

	"docs/terraform.md: $ fencegate lock get terraform/prod/network": {
		before: "fencegate lock acquire terraform/prod/network >/dev/null"},
	"docs/terraform.md: $ curl -s http://127.0.0.1:8080/v1/terraform/prod/network/history": {
		elsewhere: "needs Terraform; TestTerraform of cmd/fencegate"},
}

const createAccounts = psql + ` -qc 'create table accounts (id bigint primary key, balance integer not null);
	insert into accounts values (42, 100)'`
