// What the JavaScript clients share: how scenarios are run and reported, and what they look for. Nothing here knows an
// SDK.

import assert from 'node:assert/strict';
import { readFileSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const scenarios = [
  'card', 'send', 'return-immediately', 'stream', 'get', 'list', 'cancel', 'multi-turn', 'resubscribe', 'parts',
  'metadata', 'error-not-found', 'error-terminal', 'push-config', 'push', 'extended-card', 'concurrent',
];

/** The scenarios of the first ring alone. */
const more = ['auth', 'auth-card'];

const deadline = 20_000;

export const job = JSON.parse(readFileSync(process.argv[2], 'utf8'));

/** Where a replica, or the proxy before one, is in the words of the binding. */
export function address(where) {
  return job.binding === 'grpc' ? job[`grpc_${where}`] : job[where];
}

class Absent extends Error {}

/** Makes a scenario that this client has no call for. */
export function absent(missing) {
  return () => {
    throw new Absent(missing);
  };
}

/** The scenarios that need more than the call that sends a message and follows its task. */
export function otherCalls(perform) {
  const names = [
    'return-immediately', 'get', 'list', 'cancel', 'resubscribe', 'error-not-found', 'error-terminal', 'push-config', 'push', 'extended-card',
  ];
  return Object.fromEntries(names.map((name) => [name, perform]));
}

/** Runs every scenario, which is performs[name]. */
export async function run(performs) {
  console.log = console.info = console.error; // stdout is the report's
  for (const name of [...scenarios, ...more.filter((n) => n in performs)]) {
    report(name, await outcome(performs[name]));
  }
  process.exit(0); // a scenario that was given up may still hold connections
}

async function outcome(perform) {
  const timer = new AbortController();
  try {
    await Promise.race([
      (async () => perform())(),
      sleep(deadline, undefined, { signal: timer.signal }).then(() => {
        throw new Error(`not done after ${deadline} ms`);
      }),
    ]);
    return { outcome: 'passed', detail: '' };
  } catch (err) {
    if (err instanceof Absent) {
      return { outcome: 'absent', detail: err.message };
    }
    console.error(err);
    return { outcome: 'failed', detail: describe(err) };
  } finally {
    timer.abort();
  }
}

function describe(err) {
  return err instanceof Error ? `${err.name}: ${err.message}` : JSON.stringify(err);
}

function report(scenario, result) {
  writeSync(1, JSON.stringify({ scenario, ...result }) + '\n');
}

/** Closes every connection through the proxy. */
async function cut() {
  const res = await fetch(job.cut, { method: 'POST' });
  assert.ok(res.ok, `cut: ${res.status}`);
}

/**
 * Reads a stream until it is cut, and asserts that it was. An error is not required: fetch of Node.js 20 ends a response
 * that says Connection: close without one, however it is cut off (https://github.com/nodejs/undici/pull/5308).
 */
export async function followUntilCut(follow, chunks) {
  let cuts = 0;
  await follow(async () => {
    if (chunks.texts.length >= 5 && cuts++ === 0) {
      await cut();
    }
  }).catch((err) => {
    console.error('the stream was cut:', err);
  });
  assert.ok(cuts > 0 && chunks.texts.length < 60, `the stream was not cut, and had ${chunks.texts.length} chunks`);
}

/** Repeats get until what it gives is as wanted. The scenario's deadline ends it. */
export async function until(wanted, get) {
  for (;;) {
    const value = await get();
    if (wanted(value)) {
      return value;
    }
    await sleep(50);
  }
}

/** Credentials for the server that requires one: the header that shows each, and whether the server accepts it. */
export const credentials = [
  { headers: {}, accepted: false },
  { headers: { 'x-api-key': 'hfk_wrong' }, accepted: false },
  { headers: { authorization: 'Bearer not.a.token' }, accepted: false },
  { headers: { 'x-api-key': job.api_key }, accepted: true },
  { headers: { authorization: `Bearer ${job.token}` }, accepted: true },
];

/**
 * A handler of the SDK's fetch that shows a credential once the server has asked for one. answers has the challenges and
 * the statuses that the handler saw.
 */
export function whenAsked(headers, answers) {
  let shown = {};
  return {
    headers: async () => shown,
    shouldRetryWithHeaders: async (_, res) => {
      answers.push([res.status, res.headers.get('www-authenticate')]);
      return res.status === 401 && Object.keys(shown).length === 0 && Object.keys(headers).length > 0 ? headers : undefined;
    },
    onSuccessfulRetry: async (accepted) => {
      shown = accepted;
    },
  };
}

/**
 * Asserts that an error tells that the server does not know the credential: by the status of HTTP or of gRPC, or in the
 * server's words, which is all that the SDKs show of an error over JSON-RPC and HTTP+JSON.
 */
export function isUnauthenticated(err) {
  const told = `${err.name} ${err.message} ${err.reason} ${err.code} ${err.cause?.code} ${err.cause?.message}`;
  assert.match(told, /\b401\b|\b16\b|unauthenticated|Authentication required/i);
  return true;
}

/** A webhook at a path of the receiver. */
export function webhook(id) {
  return { url: `${job.receiver}/${id}`, token: `token of ${id}`, credentials: `credentials-${id}` };
}

/**
 * Waits until a webhook got so many deliveries, asserts what all versions have in their headers, and returns their
 * headers and bodies.
 */
export async function delivered(id, count) {
  const { token, credentials } = webhook(id);
  const arrived = await until(
    (all) => all.length >= count,
    async () => (await fetch(`${job.receiver}/received?path=/${id}`)).json(),
  );
  assert.equal(arrived.length, count, `deliveries to ${id}`);
  return arrived.map(({ headers, body }) => {
    assert.equal(headers['x-a2a-notification-token'], token);
    assert.equal(headers.authorization, `Bearer ${credentials}`);
    return { headers, body: JSON.parse(body) };
  });
}

/**
 * What a reader has of a task's chunks: a snapshot replaces it, an update is added. Whether updates say that they append
 * is kept beside it.
 */
export class Chunks {
  texts = [];
  appends = [];

  snapshot(texts) {
    this.texts = [...texts];
  }

  update(texts, append) {
    this.texts.push(...texts);
    this.appends.push(append ?? false);
  }

  /** Asserts that these are all of the chunks, each once and in order. */
  expect(count, size) {
    expectChunks(this.texts, count, size);
  }

  /** Asserts that the first update began the artifact, and the others appended to it. */
  expectAppends() {
    const appending = this.appends.filter(Boolean).length;
    assert.ok(!this.appends[0], 'the first update appends');
    assert.equal(appending, this.appends.length - 1, `${appending} of ${this.appends.length} updates append`);
  }
}

/** Asserts that texts have all chunks, each once and in order. A read task has them in one part. */
export function expectChunks(texts, count, size) {
  const chunks = texts.flatMap((t) => t.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? []);
  assert.deepEqual(chunks.map((t) => Number(t.slice(0, 8))), Array.from({ length: count }, (_, i) => i));
  for (const t of chunks) {
    assert.equal(t.length, size);
  }
}

/** What the demo agent answers to "data", as JavaScript reads it. */
export const sampleData = {
  greeting: 'hello', big: 12345678901234567890, float: 1, list: [1, 'two', null, true], a: { z: 1, a: 2 },
};

/** What it answers to "file". */
export const sampleFile = { bytes: Buffer.from('Hello from Holdfast.\n'), name: 'hello.txt', mediaType: 'text/plain' };

/** What scenarios send as a file, as data and as metadata. */
export const sent = {
  file: { bytes: Buffer.from([0, 1, 2, 253, 254, 255, 10, 13]), name: 'bytes.bin', mediaType: 'application/octet-stream' },
  data: { text: 'größer', list: [1, 2.5, 'three', null, { four: 4 }], empty: {}, yes: true },
  metadata: { trace: { id: 'abc', tries: [1, 2.5, -3], flags: { on: true, off: false, none: null } }, note: '日本' },
};
