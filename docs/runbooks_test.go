//go:build unix

package docs_test

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
