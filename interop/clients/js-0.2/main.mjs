// @a2a-js/sdk 0.2: A2AClient, which speaks JSON-RPC of A2A 0.2 and answers with the envelope.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { A2AClient } from '@a2a-js/sdk/client';
import {
  Chunks, absent, credentials, delivered, expectChunks, followUntilCut, isUnauthenticated, job, run, sampleData, sampleFile, sent,
  until, webhook,
} from '../js-common/run.mjs';

const message = (text, more = {}) => ({
  kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...more,
});

const texts = (parts) => parts.map((p) => p.text);

const settled = (task) => ['completed', 'failed', 'canceled', 'rejected'].includes(task.status.state);

/** The result of an answer that must have one. */
async function result(answer) {
  const response = await answer;
  assert.ok(!('error' in response), `an error: ${JSON.stringify(response.error)}`);
  return response.result;
}

/** The code of an answer that must be an error. */
async function code(answer) {
  const response = await answer;
  assert.ok('error' in response, `no error: ${JSON.stringify(response.result)}`);
  return response.error.code;
}

const send = (client, msg, configuration = {}) =>
  result(client.sendMessage({ message: msg, configuration: { acceptedOutputModes: ['text/plain'], blocking: true, ...configuration } }));

const get = (client, id, more = {}) => result(client.getTask({ id, ...more }));

const hook = (id) => {
  const { url, token, credentials } = webhook(id);
  return { id, url, token, authentication: { schemes: ['Bearer'], credentials } };
};

/** Asserts that a webhook gets a task as it was in these states, each once and in this order. */
async function expectDelivered(id, taskId, states) {
  const tasks = (await delivered(id, states.length)).map(({ headers, body }) => {
    assert.equal(headers['content-type'], 'application/json');
    assert.equal(body.kind, 'task');
    assert.equal(body.id, taskId);
    assert.equal(body.artifacts?.length ?? 0, body.status.state === 'completed' ? 1 : 0);
    return body;
  });
  assert.deepEqual(tasks.map((t) => t.status.state), states);
}

/** Reads a stream to its end and returns the last state. */
async function follow(stream, chunks, each = () => {}) {
  let state;
  for await (const event of stream) {
    switch (event.kind) {
      case 'task':
        chunks.snapshot((event.artifacts ?? []).flatMap((a) => texts(a.parts)));
        state = event.status.state;
        break;
      case 'artifact-update':
        chunks.update(texts(event.artifact.parts), event.append);
        break;
      case 'status-update':
        assert.equal(event.final, settled(event));
        state = event.status.state;
        break;
      default:
        assert.fail(`event of kind ${event.kind}`);
    }
    await each(event);
  }
  return state;
}

// The client takes its address from a card that it fetches itself, and has no other way to be told one: a card of
// another content is served to it.
async function clientWithCard(change) {
  const card = { ...(await (await fetch(`${job.a}/.well-known/agent.json`)).json()), ...change };
  const server = createServer((_, res) => {
    res.setHeader('Content-Type', 'application/json').end(JSON.stringify(card));
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const client = new A2AClient(`http://127.0.0.1:${server.address().port}`);
  await client.getAgentCard();
  server.close();
  return client;
}

assert.equal(job.binding, 'jsonrpc', 'A2AClient has no other transport');

const a = new A2AClient(job.a);
a.getAgentCard().catch(() => {}); // the scenarios tell

await run({
  async card() {
    const card = await a.getAgentCard();
    assert.equal(card.name, 'demo');
    assert.ok(card.capabilities.streaming);
  },

  async send() {
    const task = await send(a, message('echo:hello'));
    assert.equal(task.kind, 'task');
    assert.equal(task.status.state, 'completed');
    assert.deepEqual(texts(task.artifacts[0].parts), ['hello']);
  },

  async 'return-immediately'() {
    const task = await send(a, message('sleep=300ms'), { blocking: false });
    assert.ok(!settled(task), task.status.state);
    const last = await until(settled, () => get(a, task.id));
    assert.equal(last.status.state, 'completed');
  },

  async stream() {
    const chunks = new Chunks();
    const state = await follow(a.sendMessageStream({ message: message('chunks=20 size=64 delay=5ms') }), chunks);
    assert.equal(state, 'completed');
    chunks.expect(20, 64);
    chunks.expectAppends();
  },

  async get() {
    const { id } = await send(a, message('ask:which?'));
    await send(a, message('this one', { taskId: id }));
    const task = await get(a, id);
    assert.deepEqual(task.history.map((m) => m.parts[0].text), ['ask:which?', 'which?', 'this one']);
    assert.deepEqual(texts(task.artifacts[0].parts), ['You answered: this one']);
    const short = await get(a, id, { historyLength: 1 });
    assert.deepEqual(short.history.map((m) => m.parts[0].text), ['this one']);
  },

  list: absent('tasks/list: 0.2 has no such method'),

  async cancel() {
    const { id } = await send(a, message('hold'), { blocking: false });
    await until((t) => t.status.state === 'working', () => get(a, id));
    const task = await result(a.cancelTask({ id }));
    assert.equal(task.status.state, 'canceled');
    assert.equal((await get(a, id)).status.state, 'canceled');
  },

  async 'multi-turn'() {
    const asked = await send(a, message('ask:which?'));
    assert.equal(asked.status.state, 'input-required');
    assert.deepEqual(texts(asked.status.message.parts), ['which?']);
    const b = new A2AClient(job.b);
    const task = await send(b, message('that one', { taskId: asked.id, contextId: asked.contextId }));
    assert.equal(task.id, asked.id);
    assert.equal(task.status.state, 'completed');
    assert.match(task.artifacts[0].parts[0].text, /that one/);
  },

  async resubscribe() {
    const through = await clientWithCard({ url: job.through });
    const chunks = new Chunks();
    let id;
    const stream = through.sendMessageStream({ message: message('chunks=60 size=64 delay=100ms') });
    await followUntilCut((each) => follow(stream, chunks, async (event) => {
      id ??= event.id;
      await each();
    }), chunks);

    const b = new A2AClient(job.b);
    assert.equal(await follow(b.resubscribeTask({ id }), chunks), 'completed');
    chunks.expect(60, 64);
    expectChunks((await get(b, id)).artifacts.flatMap((a) => texts(a.parts)), 60, 64);
  },

  async parts() {
    const parts = [
      { kind: 'text', text: 'look', metadata: { lang: 'en' } },
      { kind: 'file', file: { bytes: sent.file.bytes.toString('base64'), name: sent.file.name, mimeType: sent.file.mediaType } },
      { kind: 'data', data: sent.data },
    ];
    const { id } = await send(a, message('', { parts }));
    const task = await get(a, id);
    assert.deepEqual(task.history[0].parts, parts);
    assert.deepEqual(task.artifacts[0].parts, parts);

    const file = (await send(a, message('file'))).artifacts[0].parts;
    assert.deepEqual(file, [
      { kind: 'file', file: { bytes: sampleFile.bytes.toString('base64'), name: sampleFile.name, mimeType: sampleFile.mediaType } },
    ]);
    const data = (await send(a, message('data'))).artifacts[0].parts;
    assert.deepEqual(data, [{ kind: 'data', data: sampleData }]);
  },

  async metadata() {
    const { id } = await send(a, message('echo:hello', { metadata: sent.metadata }));
    assert.deepEqual((await get(a, id)).history[0].metadata, sent.metadata);
  },

  async 'error-not-found'() {
    assert.equal(await code(a.getTask({ id: randomUUID() })), -32001);
  },

  async 'error-terminal'() {
    const { id } = await send(a, message('echo:hello'));
    assert.equal(await code(a.cancelTask({ id })), -32002);
  },

  // A2AClient has no calls to list and to delete.
  async 'push-config'() {
    const b = new A2AClient(job.b);
    const { id: taskId } = await send(a, message('ask:which?'));
    const shown = ({ taskId: of, pushNotificationConfig: { id, url } }) => ({ of, id, url });
    for (const id of ['one', 'two']) {
      const set = await result(a.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: hook(id) }));
      assert.deepEqual(shown(set), { of: taskId, id, url: webhook(id).url });
    }
    const got = await result(b.getTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'two' }));
    assert.deepEqual(shown(got), { of: taskId, id: 'two', url: webhook('two').url });
    assert.equal(await code(b.getTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'three' })), -32001);
  },

  async push() {
    const { id } = await send(a, message('chunks=3 size=64 delay=20ms'), {
      blocking: false, pushNotificationConfig: hook('inline'),
    });
    await expectDelivered('inline', id, ['working', 'completed']);

    const { id: taskId } = await send(a, message('ask:which?'));
    await result(a.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: hook('later') }));
    await send(new A2AClient(job.b), message('that one', { taskId }));
    await expectDelivered('later', taskId, ['submitted', 'working', 'completed']);
  },

  'extended-card': absent('A2AClient has no call for the authenticated extended card'),

  // A2AClient calls the global fetch and has no option for headers, so an application can only replace that.
  async auth() {
    const plain = globalThis.fetch;
    try {
      for (const { headers, accepted } of credentials) {
        globalThis.fetch = (url, init) => plain(url, { ...init, headers: { ...init.headers, ...headers } });
        const client = new A2AClient(job.locked);
        // The card also shows what its reader may see.
        assert.deepEqual((await client.getAgentCard()).skills.map((s) => s.id), accepted ? ['open', 'hidden'] : ['open']);
        const streamed = () => follow(client.sendMessageStream({ message: message('echo:hello') }), new Chunks());
        if (!accepted) {
          // It reads the body of an error twice, and fails with that.
          await assert.rejects(send(client, message('echo:hello')), /401|Body/);
          await assert.rejects(streamed(), isUnauthenticated);
          continue;
        }
        assert.deepEqual(texts((await send(client, message('echo:hello'))).artifacts[0].parts), ['hello']);
        assert.equal(await streamed(), 'completed');
      }
    } finally {
      globalThis.fetch = plain;
    }
  },

  'auth-card': absent('A2AClient has no call for the authenticated extended card'),

  async concurrent() {
    const tasks = await Promise.all(Array.from({ length: 20 }, (_, i) => send(a, message(`echo:hello ${i}`))));
    tasks.forEach((task, i) => {
      assert.equal(task.status.state, 'completed');
      assert.deepEqual(texts(task.artifacts[0].parts), [`hello ${i}`]);
    });
    assert.equal(new Set(tasks.map((t) => t.id)).size, 20);
  },
});
