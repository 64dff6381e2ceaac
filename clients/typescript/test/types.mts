// How a program in TypeScript sees the package. It is compiled, and never run.
import { Client, LockHeld, type AcquireOptions } from 'fencegate';

const client = new Client('http://127.0.0.1:8080', { owner: 'worker-1', token: async () => 'key' });
const options: AcquireOptions = { ttlMs: 5000, signal: new AbortController().signal };
const version: number = await client.do('job-42', async (lease, signal) => {
  await fetch('https://example.net', { signal });
  return (await lease.put('k', 'v', { ifVersion: 3 })).version;
}, options);
try {
  await client.acquire('job-42');
} catch (error) {
  if (error instanceof LockHeld) console.log(error.holder?.length, version);
}
// @ts-expect-error There is no such option.
await client.acquire('job-42', { ttl: 3 });
