// Runs the contract cases with the TypeScript client: node test/cases.js CASES. It prints a verdict for each
// case, one JSON object a line.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import * as fencegate from '../src/index.js';

// Deno's fetch sends a request again by itself if a kept connection breaks: see README.md.
const client = globalThis.Deno?.createHttpClient({ poolMaxIdlePerHost: 0 });
const fetchOnce = client && ((url, init) => fetch(url, { ...init, client }));
const limitMs = 60_000;
// A busy machine may need longer than the client gives to the question for the holder.
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => timeout(10 * ms);
// Most cases wait most of the time.
const casesAtOnce = 12;
const { FENCEGATE_URL, PROXY_URL, TLS_URL, API_KEY } = process.env;

/** A step did not do what the case says. */
class Fault extends Error {}

/** The failure of a work. */
class Work extends Error {}

/** Runs one case. */
class CaseRun {
  constructor(run, { client = {}, steps }) {
    this.run = run;
    this.proxy = `${PROXY_URL}/${run}`;
    this.caseSteps = steps;
    this.leases = {};
    this.tasks = {};
    const addresses = {
      proxy: this.proxy, gateway: FENCEGATE_URL, nowhere: 'http://127.0.0.1:2', unknown_authority: TLS_URL,
      tls_port: TLS_URL.replace('https', 'http'), http_port: FENCEGATE_URL.replace('http', 'https'),
    };
    const urls = (client.gateways ?? ['proxy']).map((name) => addresses[name]);
    const make = (name, [url, ...failover], answerBytesMax) => new fencegate.Client(url, {
      failover, owner: `${run}/${name}`, token: API_KEY, answerTimeoutMs: client.answer_timeout_ms, answerBytesMax,
      ...(fetchOnce && { fetch: fetchOnce }),
    });
    this.clients = { main: make('main', urls, client.answer_bytes_max), other: make('other', [FENCEGATE_URL]) };
  }

  async runSteps(steps = this.caseSteps) {
    for (const [i, step] of steps.entries()) {
      try {
        await Promise.race([this.step(step), sleep(limitMs, undefined, { ref: false }).then(() => {
          throw new Fault('it did not end');
        })]);
      } catch (error) {
        this.over = true; // so that no step waits on, and the process ends
        throw error instanceof Work || step.raises ? error : new Fault(`step ${i + 1} (${step.do}): ${error.message}`);
      }
    }
  }

  async step(step) {
    if (step.do === 'fail') throw new Work('the work failed');
    if (step.background) {
      const controller = new AbortController();
      const task = { controller, result: this.perform(step, controller.signal) };
      task.result.catch(() => {});
      this.tasks[step.background] = task;
      return;
    }
    if (step.raises) {
      await this.perform(step);
      return;
    }
    while (!this.over) {
      try {
        return await this.judge(step);
      } catch (error) {
        if (!(error instanceof Fault) || !step.until) throw error;
      }
      await sleep(10);
    }
  }

  // judge performs a step, and compares its result with what is expected.
  async judge(step) {
    const expect = step.expect ?? {};
    let got;
    try {
      got = await this.perform(step);
    } catch (error) {
      if (error instanceof Fault) throw error;
      got = describe(error);
      const since = got.not_holder && error.holder ? `${error.holder} has held the lock since ${error.heldSince})` : '';
      if (!error.message.endsWith(since)) throw new Fault(`it does not end with ${since}: ${error.message}`);
      if (got.not_holder && !error.stack.includes('cases.js')) throw new Fault(`it has no caller: ${error.stack}`);
      if (!expect.error) throw new Fault(`it failed: ${error.stack}`);
    }
    if (expect.error && !got.error) {
      throw new Fault(`it succeeded with ${JSON.stringify(got)}, expected ${JSON.stringify(expect)}`);
    }
    for (const [name, want] of Object.entries(expect)) {
      if (!this.matches(want, got[name])) {
        throw new Fault(`${name} is ${got[name]}, expected ${JSON.stringify(want)}: ${JSON.stringify(got)}`);
      }
    }
  }

  matches(want, got) {
    if (typeof want === 'string') return got === want.replaceAll('{run}', this.run);
    if (want === null) return got === undefined;
    if (typeof want !== 'object') return got === want;
    const comparisons = {
      has: (text) => got.includes(text.replace('{trust}', 'NODE_EXTRA_CA_CERTS')),
      at_least: (bound) => got >= bound,
      at_most: (bound) => got <= bound,
      above: (lease) => got > this.leases[lease].fencingToken,
      of: (lease) => got === this.leases[lease].fencingToken,
    };
    return Object.entries(want).every(([name, bound]) => comparisons[name](bound));
  }

  async perform(step, signal) {
    const client = this.clients[step.client ?? 'main'];
    const lock = step.lock === undefined ? this.run : `${this.run}/${step.lock}`;
    const lease = this.leases[step.lease];
    const terms = { shared: step.mode === 'shared', signal, ...(step.ttl_ms && { ttlMs: step.ttl_ms }) };
    switch (step.do) {
      case 'acquire':
        this.leases[step.lease] = await client.acquire(
          lock, { ...terms, waitMs: step.wait_ms ?? 0, heartbeat: step.heartbeat ?? false });
        return leaseResult(this.leases[step.lease]);
      case 'do':
        await this.hold(client, lock, step, terms);
        return {};
      case 'renew':
        await lease.renew();
        return leaseResult(lease);
      case 'release':
        await lease.release();
        return {};
      case 'check':
        return leaseResult(lease);
      case 'lost':
        return describe(await aborted(lease.signal));
      case 'work_until_stopped':
        return describe(await aborted(this.lost));
      case 'put': case 'delete': case 'transaction': case 'writes': case 'get':
        return this.records(step, client, lock, lease);
    }
    return this.control(step, lock);
  }

  // hold runs the steps as the work of do. Their fault counts, also where do rejects since the lease was lost.
  async hold(client, lock, step, terms) {
    let fault;
    const doing = client.do(lock, async (granted, lost) => {
      this.leases[step.lease] = granted;
      this.lost = lost;
      await this.runSteps(step.steps).catch((error) => {
        if (!(error instanceof Fault)) throw error;
        fault = error;
      });
    }, terms);
    await doing.catch((error) => { throw fault ?? error; });
    if (fault) throw fault;
  }

  async records(step, client, lock, lease) {
    const options = { contentType: step.content_type, ifVersion: step.if_version, ifAbsent: step.if_absent };
    switch (step.do) {
      case 'put':
        return lease.put(step.key, step.value, options);
      case 'delete':
        return lease.delete(step.key, options);
      case 'writes': {
        const common = { resource: lock, fencing_token: lease.fencingToken };
        const outcomes = await client.writes(step.writes.map((write) => ({ ...common, ...write })));
        return { outcomes: outcomes.map(({ result, error }) => {
          if (result) return result.replayed ? 'replayed' : 'applied';
          const { error: code, outcome_unknown: unknown } = describe(error);
          return code + (unknown ? '?' : '');
        }).join(' ') };
      }
      case 'transaction': {
        const { results, replayed } = await lease.transaction(step.ops);
        return { results: results.length, replayed };
      }
    }
    const record = await client.get(lock, step.key);
    return { ...record, value: record.text(), content_type: record.contentType, token: record.fencingToken };
  }

  async control(step, lock) {
    switch (step.do) {
      case 'join':
        return this.tasks[step.of].result;
      case 'cancel':
        this.tasks[step.of].controller.abort();
        return {};
      case 'state': {
        const state = await this.clients.other.lockState(lock);
        const { length: holders } = state.holders;
        return { state: state.state, token: state.fencing_token, holders, queue: state.queue.length };
      }
      case 'break':
        await this.clients.other.breakLock(lock, 'a test');
        return {};
      case 'pause':
        await sleep(step.ms);
        return {};
      case 'calls':
        return this.askProxy(`calls?path=${encodeURIComponent(step.path)}`);
      case 'freeze':
        return this.askProxy('freeze', { pid: process.pid, lock });
      case 'harm': case 'let_go':
        return this.askProxy(step.do, { path: step.path, faults: step.faults, always: step.always });
    }
    throw new Fault('it is no step');
  }

  async askProxy(command, body = {}) {
    const answer = await fetch(`${this.proxy}/-/${command}`, { method: 'POST', body: JSON.stringify(body) });
    return answer.json();
  }
}

const aborted = async (signal) => {
  if (!signal.aborted) await new Promise((resolve) => { signal.addEventListener('abort', resolve); });
  return signal.reason;
};

function leaseResult(lease) {
  const got = { token: lease.fencingToken, owner: lease.owner, expires_in_ms: lease.expiresInMs, valid: lease.valid };
  return lease.valid ? got : { ...got, error: describe(lease.error).error };
}

function describe(error) {
  const { name, message, outcomeUnknown, retryable } = error;
  const got = { error: name, outcome_unknown: outcomeUnknown, not_holder: false, message, retryable };
  if (error instanceof fencegate.ApiError) {
    const named = error.code.replaceAll(/(?:^|_)(.)/g, (_, letter) => letter.toUpperCase());
    if (error.name !== named) throw new Fault(`${error.code} is the class ${error.name}`);
    Object.assign(got, { error: error.code, reason: error.reason });
  }
  if (error instanceof fencegate.LockHeld) got.holder = error.holder;
  if (error instanceof fencegate.NotHolderError) {
    Object.assign(got, { not_holder: true, paused_ms: error.pausedMs, holder: error.holder });
  }
  if (error instanceof fencegate.VersionMismatch) got.version = error.version;
  if (error instanceof fencegate.LeaseReleased) got.error = 'released';
  if (error instanceof fencegate.ForeignAnswer) got.error = 'foreign_answer';
  if (error instanceof Work) got.error = 'work';
  if (error.name === 'AbortError') got.error = 'canceled';
  return got;
}

const { cases } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const runAll = async (numbered) => {
  for (const [number, each] of numbered) {
    const run = new CaseRun(`${globalThis.Deno ? 'deno' : 'node'}-${number}`, each);
    const verdict = { case: each.name };
    try {
      await run.runSteps();
    } catch (error) {
      verdict.error = error.message;
    }
    Object.values(run.clients).forEach((client) => client.close());
    console.log(JSON.stringify(verdict));
  }
};
const together = [...cases.entries()].filter(([, { alone }]) => !alone).values();
await Promise.all(Array.from({ length: casesAtOnce }, () => runAll(together)));
await runAll([...cases.entries()].filter(([, { alone }]) => alone));
