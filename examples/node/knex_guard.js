// A fenced change by Knex, and a zombie. It connects by PGHOST, PGDATABASE and the like.
const { setTimeout: sleep } = require('node:timers/promises');
const knex = require('knex')({ client: 'pg', connection: {} });

const LOCK = 'accounts/5';

// acquire waits for the lock, and returns a function that runs numbered, fenced transactions under the lease.
async function acquire(owner, ttlMs) {
  for (;;) {
    const { rows: [lease] } = await knex.raw('select * from fence.acquire(?, ?, ?)', [LOCK, owner, ttlMs]);
    if (lease.status === 'granted') return fenced(lease.fencing_token);
    await sleep(Number(lease.recommended_retry_ms));
  }
}

// fenced sets the token for each transaction, from which the table's trigger calls fence.guard. So the queries are
// Knex's own.
function fenced(token) {
  let sequence = 0;
  return (queries) => knex.transaction(async (trx) => {
    await trx.raw('select fence.set_token(?, ?)', [token, ++sequence]);
    return queries(trx);
  });
}

async function withdraw(owner, transaction) {
  const [account] = await transaction((trx) =>
    trx('accounts').where({ id: 5 }).decrement('balance', 10).returning('balance'));
  console.log(`${owner}: the balance is ${account.balance}`);
}

async function main() {
  const workerA = await acquire('worker-a', 1000);
  await withdraw('worker-a', workerA);

  console.log('worker-a is frozen, and its lease expires');
  const workerB = await acquire('worker-b', 30000);

  console.log('worker-a wakes up');
  const error = await withdraw('worker-a', workerA).catch((error) => error);
  if (error?.code !== 'LF103') throw error ?? new Error("the zombie's write was accepted");
  console.log(`rejected: ${error.code}: ${error.message}`);

  await withdraw('worker-b', workerB);
  await knex.destroy();
}

main();
