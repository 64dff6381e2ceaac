// A fenced update by node-postgres, and a zombie. It connects by PGHOST, PGDATABASE and the like.
const { setTimeout: sleep } = require('node:timers/promises');
const { Client } = require('pg');

const LOCK = 'accounts/4';
const db = new Client();

// acquire waits for the lock, and returns the fencing token of the lease.
async function acquire(owner, ttlMs) {
  for (;;) {
    const { rows: [lease] } = await db.query('select * from fence.acquire($1, $2, $3)', [LOCK, owner, ttlMs]);
    if (lease.status === 'granted') return lease.fencing_token;
    await sleep(Number(lease.recommended_retry_ms));
  }
}

async function withdraw(owner, token, sequence) {
  await db.query('begin');
  try {
    await db.query('select fence.guard($1, $2, $3)', [LOCK, token, sequence]); // first, before any read
    const { rows: [account] } = await db.query(
      'update accounts set balance = balance - 10 where id = 4 returning balance');
    await db.query('commit');
    console.log(`${owner}: the balance is ${account.balance}`);
  } catch (error) {
    await db.query('rollback');
    throw error;
  }
}

async function main() {
  await db.connect();
  const older = await acquire('worker-a', 1000);
  await withdraw('worker-a', older, 1);

  console.log('worker-a is frozen, and its lease expires');
  const newer = await acquire('worker-b', 30000);

  console.log('worker-a wakes up');
  const error = await withdraw('worker-a', older, 2).catch((error) => error);
  if (error?.code !== 'LF103') throw error ?? new Error("the zombie's write was accepted");
  console.log(`rejected: ${error.code}: ${error.message}`);

  await withdraw('worker-b', newer, 1);
  await db.end();
}

main();
