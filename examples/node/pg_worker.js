// A worker that claims jobs, by node-postgres. It connects by PGHOST, PGDATABASE and the like.
//
// It ends when there is no job left. One that runs on waits here, for a second or a notification. An error ends it, too:
// its leases expire, and another worker takes its jobs.
const { hostname } = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { Pool } = require('pg');

const OWNER = `${hostname()}-${process.pid}`;
const TTL_MS = 10000;
const pool = new Pool();
pool.on('error', (error) => console.log(`an idle connection: ${error.message}`));

// work does the job, and stops when the signal says that it is lost.
async function work(job, signal) {
  if (job.seconds < 0) throw new Error('less than no time');
  await sleep(job.seconds * 1000, undefined, { signal });
}

// renew renews the leases of a claim together, and aborts each job that is lost.
async function renew(jobs) {
  try {
    const { rows } = await pool.query('select resource from fence.renew_claim($1, $2)', [OWNER, jobs[0].lease_id]);
    const held = new Set(rows.map((row) => row.resource));
    for (const job of jobs) if (!held.has(job.resource)) job.lost.abort(); // also those that are completed
  } catch (error) { // the next one may succeed
    console.log(`not renewed: ${error.message}`);
  }
}

// complete returns whether the job was still this worker's. If not, another worker does it again.
async function complete({ resource, lease_id: lease, fencing_token: token, job }, update) {
  const db = await pool.connect();
  let failure;
  try {
    await db.query('begin');
    await db.query('select fence.guard($1, $2, 1)', [resource, token]);
    await db.query(update, [job.id]);
    await db.query('select fence.release($1, $2, $3, $4)', [resource, OWNER, lease, token]);
    await db.query('commit');
    return true;
  } catch (error) {
    failure = error;
    if (error.code !== 'LF103') throw error;
    return false;
  } finally {
    db.release(failure); // a connection with an open transaction is closed
  }
}

async function main() {
  for (;;) {
    const { rows: jobs } = await pool.query(
      "select * from fence.claim('jobs', 10, $1, $2, 'not done and due <= now()')", [OWNER, TTL_MS]);
    if (jobs.length === 0) break;
    for (const job of jobs) job.lost = new AbortController();
    const renewals = setInterval(renew, TTL_MS / 3, jobs);
    for (const job of jobs) {
      let outcome = 'done', update = 'update jobs set done = true where id = $1';
      await work(job.job, job.lost.signal).catch((error) => {
        outcome = `failed: ${error.message}`;
        update = "update jobs set attempts = attempts + 1, due = now() + interval '1 minute' where id = $1";
      });
      if (job.lost.signal.aborted || !await complete(job, update)) outcome = 'lost';
      console.log(`${job.resource}: ${outcome}`);
    }
    clearInterval(renewals);
  }
  await pool.end();
}

main();
