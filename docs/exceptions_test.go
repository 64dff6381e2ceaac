package docs_test

// exception is a block that needs something before it runs, or can't run here at all.
type exception struct {
	before    string // commands
	elsewhere string // why it does not run here, and what checks it
}

// exceptions has them by document and first line of the block, or by document alone for all blocks of it.
var exceptions = map[string]exception{
	"clients/python/README.md":     {elsewhere: "TestQuickStarts of clients runs it with the installed package"},
	"clients/typescript/README.md": {elsewhere: "TestQuickStarts of clients runs it with the installed package"},
	"deploy/kubernetes/README.md":  {elsewhere: "needs a cluster; the chart has tests of its own"},
	"docs/sql-clients.md":          {elsewhere: "TestExamples of examples runs it, with each program's drivers"},

	"README.md: select fence.protect('public.accounts', 'accounts/{id}');            -- once: a fence for each row": {
		before: createAccounts},
	"README.md: fencegate migrate   # the database of FENCEGATE_DATABASE_URL": {
		before: "fencegate dev-cert certs >/dev/null; cp certs/server.pem tls.crt; cp certs/server-key.pem tls.key"},

	"docs/cli.md: $ cat nightly.sh": {
		elsewhere: "needs a second terminal; TestRunStopsACommandThatHasLostItsLease of cmd/fencegate"},
	`docs/cli.md: $ fencegate lock break nightly --reason "the host is gone, they say"`: {
		elsewhere: "the second terminal"},

	"docs/external-locks.md: $ fencegate fence get jobs/42": {
		before: "fencegate put jobs/42 result x --token 1767344421480.1"},

	"docs/operations.md: docker compose up --build": {elsewhere: "needs Docker; TestComposeServices of deploy"},
	"docs/operations.md: go tool pprof -top 'http://127.0.0.1:6060/debug/pprof/profile?seconds=30'          # CPU": {
		elsewhere: "takes a profile for 30 s; the tests of serve_debug in cmd/fencegate"},

	"docs/scaling.md: fencegate serve --database-url \"$WEST\" --names eu,us …": {
		before: "WEST=$DATABASE_URL EAST=$DATABASE_URL"},
	"docs/scaling.md: $ fencegate lock break us/job --url http://west:8081 --reason 'us moves'": {
		elsewhere: "needs two fleets; TestFleets of deploy"},
	`docs/scaling.md: $ deploy/fleets/move-prefix "$WEST_OWNER" "$EAST_OWNER" us 7`: {
		elsewhere: "needs two fleets; TestFleets of deploy"},

	"docs/security.md: $ psql \"$OWNER_URL\" -c 'create role fencegate_gateway login; grant pg_read_all_stats to fencegate_gateway'": {
		before: `OWNER_URL=$DATABASE_URL GATEWAY_URL="$DATABASE_URL user=fencegate_gateway"`},

	"docs/sql.md: create table accounts (id bigint primary key, balance integer not null);": {
		before: psql + " -qc 'select fence.unprotect($$accounts$$); drop table accounts'"},
	"docs/sql.md: select fence.protect('public.accounts', 'accounts/{id}');    -- once, as the table's owner": {
		before: createAccounts},
	`docs/sql.md: $ fencegate migrate --database-url "$URL" --app-role app`: {
		before: psql + " -qc 'create role app login'"},

	"docs/terraform.md: $ fencegate lock get terraform/prod/network": {
		before: "true"},
	"docs/terraform.md: $ curl -s http://127.0.0.1:8080/v1/terraform/prod/network/history": {
		elsewhere: "needs Terraform; TestTerraform of cmd/fencegate"},
}

const createAccounts = psql + ` -qc 'create table accounts (id bigint primary key, balance integer not null);
	insert into accounts values (42, 100)'`
