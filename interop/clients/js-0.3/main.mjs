// @a2a-js/sdk 0.3: Client, which speaks A2A 0.3 over JSON-RPC, HTTP+JSON and gRPC.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory, TaskNotCancelableError,
  TaskNotFoundError, createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import {
  Chunks, absent, address, credentials, delivered, expectChunks, followUntilCut, isUnauthenticated, job, run, sampleData,
  sampleFile, sent, until, webhook, whenAsked,
} from '../js-common/run.mjs';

const transportWith = (options) => ({
  jsonrpc: new JsonRpcTransportFactory(options), rest: new RestTransportFactory(options), grpc: new GrpcTransportFactory(),
})[job.binding];

const transport = transportWith();

// It has one transport, so that it cannot turn to another one.
const factory = new ClientFactory({ transports: [transport] });

const card = new DefaultAgentCardResolver().resolve(job.a);
card.catch(() => {}); // the scenarios tell

/** A client made from the card, as it is. */
const clientA = async () => factory.createFromAgentCard(await card);

/** A client made from the card, with another address in it. */
const clientAt = async (where) => factory.createFromAgentCard({
  ...(await card), url: address(where), preferredTransport: transport.protocolName, additionalInterfaces: [],
});

const message = (text, more = {}) => ({
  kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...more,
});

const send = (client, msg, configuration = {}) => client.sendMessage({ message: msg, configuration });

const texts = (parts) => parts.map((p) => p.text);

const settled = (task) => ['completed', 'failed', 'canceled', 'rejected'].includes(task.status.state);

const unnamed = (parts) => parts.map((p) => (p.file ? { ...p, file: { ...p.file, name: undefined } } : p));

const withoutNulls = (v) => {
  if (Array.isArray(v)) {
    return v.filter((x) => x !== null).map(withoutNulls);
  }
  return v instanceof Object
    ? Object.fromEntries(Object.entries(v).filter(([, x]) => x !== null).map(([k, x]) => [k, withoutNulls(x)]))
    : v;
};

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

/** A client of the server that requires a credential. answers gets what it says over HTTP. */
async function unlock(headers) {
  const locked = await new DefaultAgentCardResolver().resolve(job.locked);
  const { url } = locked.additionalInterfaces.find((i) => i.transport === transport.protocolName);
  const answers = [];
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, whenAsked(headers, answers));
  const client = await new ClientFactory({ transports: [transportWith({ fetchImpl })] }).createFromAgentCard({
    ...locked, url, preferredTransport: transport.protocolName, additionalInterfaces: [],
  });
  return { locked, client, answers, options: job.binding === 'grpc' ? { serviceParameters: headers } : undefined };
}

await run({
  async card() {
    const a = await clientA();
    assert.equal((await card).name, 'demo');
    assert.equal((await card).protocolVersion, '0.3.0');
    assert.equal((await send(a, message('echo:hello'))).status.state, 'completed');
  },

  async send() {
    const task = await send(await clientA(), message('echo:hello'));
    assert.equal(task.kind, 'task');
    assert.equal(task.status.state, 'completed');
    assert.deepEqual(texts(task.artifacts[0].parts), ['hello']);
  },

  async 'return-immediately'() {
    const a = await clientA();
    const task = await send(a, message('sleep=300ms'), { blocking: false });
    assert.ok(!settled(task), task.status.state);
    const last = await until(settled, () => a.getTask({ id: task.id }));
    assert.equal(last.status.state, 'completed');
  },

  async stream() {
    const a = await clientA();
    const chunks = new Chunks();
    const state = await follow(a.sendMessageStream({ message: message('chunks=20 size=64 delay=5ms') }), chunks);
    assert.equal(state, 'completed');
    chunks.expect(20, 64);
    chunks.expectAppends();
  },

  async get() {
    const a = await clientA();
    const { id } = await send(a, message('ask:which?'));
    await send(a, message('this one', { taskId: id }));
    const task = await a.getTask({ id });
    assert.deepEqual(task.history.map((m) => m.parts[0].text), ['ask:which?', 'which?', 'this one']);
    assert.deepEqual(texts(task.artifacts[0].parts), ['You answered: this one']);
    const short = await a.getTask({ id, historyLength: 1 });
    assert.deepEqual(short.history.map((m) => m.parts[0].text), ['this one']);
  },

  list: absent('Client has no call for listing tasks'),

  async cancel() {
    const a = await clientA();
    const { id } = await send(a, message('hold'), { blocking: false });
    await until((t) => t.status.state === 'working', () => a.getTask({ id }));
    const task = await a.cancelTask({ id });
    assert.equal(task.status.state, 'canceled');
    assert.equal((await a.getTask({ id })).status.state, 'canceled');
  },

  async 'multi-turn'() {
    const asked = await send(await clientA(), message('ask:which?'));
    assert.equal(asked.status.state, 'input-required');
    assert.deepEqual(texts(asked.status.message.parts), ['which?']);
    const b = await clientAt('b');
    const task = await send(b, message('that one', { taskId: asked.id, contextId: asked.contextId }));
    assert.equal(task.id, asked.id);
    assert.equal(task.status.state, 'completed');
    assert.match(task.artifacts[0].parts[0].text, /that one/);
  },

  async resubscribe() {
    const through = await clientAt('through');
    const chunks = new Chunks();
    let id;
    const stream = through.sendMessageStream({ message: message('chunks=60 size=64 delay=100ms') });
    await followUntilCut((each) => follow(stream, chunks, async (event) => {
      id ??= event.id;
      await each();
    }), chunks);

    const b = await clientAt('b');
    assert.equal(await follow(b.resubscribeTask({ id }), chunks), 'completed');
    chunks.expect(60, 64);
    expectChunks((await b.getTask({ id })).artifacts.flatMap((a) => texts(a.parts)), 60, 64);
  },

  // What 0.3 loses over some transports, the names of files and nulls, is looked for last, so that all else is seen.
  async parts() {
    const a = await clientA();
    const parts = (data) => [
      { kind: 'text', text: 'look' },
      { kind: 'file', file: { bytes: sent.file.bytes.toString('base64'), name: sent.file.name, mimeType: sent.file.mediaType } },
      { kind: 'data', data },
    ];
    const comesBack = async (data, as) => {
      const { id } = await send(a, message('', { parts: parts(data) }));
      const task = await a.getTask({ id });
      assert.deepEqual(as(task.history[0].parts), as(parts(data)));
      assert.deepEqual(as(task.artifacts[0].parts), as(parts(data)));
    };
    await comesBack(withoutNulls(sent.data), unnamed);

    const file = (await send(a, message('file'))).artifacts[0].parts;
    const sample = [
      { kind: 'file', file: { bytes: sampleFile.bytes.toString('base64'), name: sampleFile.name, mimeType: sampleFile.mediaType } },
    ];
    assert.deepEqual(unnamed(file), unnamed(sample));
    const [data, ...more] = (await send(a, message('data'))).artifacts[0].parts;
    assert.deepEqual({ ...data.data, list: [] }, { ...sampleData, list: [] });
    assert.deepEqual(more, []);

    assert.deepEqual(file, sample, 'the name of a file');
    assert.deepEqual(data, { kind: 'data', data: sampleData }, 'a null in data');
    await comesBack(sent.data, (p) => p);
  },

  async metadata() {
    const a = await clientA();
    for (const metadata of [withoutNulls(sent.metadata), sent.metadata]) {
      const { id } = await send(a, message('echo:hello', { metadata }));
      assert.deepEqual((await a.getTask({ id })).history[0].metadata, metadata);
    }
  },

  async 'error-not-found'() {
    await assert.rejects((await clientA()).getTask({ id: randomUUID() }), TaskNotFoundError);
  },

  async 'error-terminal'() {
    const a = await clientA();
    const { id } = await send(a, message('echo:hello'));
    await assert.rejects(a.cancelTask({ id }), TaskNotCancelableError);
  },

  async 'push-config'() {
    const a = await clientA();
    const b = await clientAt('b');
    const { id: taskId } = await send(a, message('ask:which?'));
    const shown = ({ taskId: of, pushNotificationConfig: { id, url } }) => ({ of, id, url });
    for (const id of ['one', 'two']) {
      const set = await a.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: hook(id) });
      assert.deepEqual(shown(set), { of: taskId, id, url: webhook(id).url });
    }
    const one = { id: taskId, pushNotificationConfigId: 'one' };
    const got = await b.getTaskPushNotificationConfig(one);
    assert.deepEqual(shown(got), { of: taskId, id: 'one', url: webhook('one').url });
    const ids = async (client) =>
      (await client.listTaskPushNotificationConfig({ id: taskId })).map((c) => c.pushNotificationConfig.id).sort();
    assert.deepEqual(await ids(b), ['one', 'two']);
    await a.deleteTaskPushNotificationConfig(one);
    await a.deleteTaskPushNotificationConfig(one); // it is gone either way
    await assert.rejects(a.getTaskPushNotificationConfig(one), TaskNotFoundError);
    assert.deepEqual(await ids(a), ['two']);
  },

  async push() {
    const a = await clientA();
    const { id } = await send(a, message('chunks=3 size=64 delay=20ms'), {
      blocking: false, pushNotificationConfig: hook('inline'),
    });
    await expectDelivered('inline', id, ['working', 'completed']);

    const b = await clientAt('b');
    const { id: taskId } = await send(a, message('ask:which?'));
    await a.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: hook('kept') });
    await a.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: hook('deleted') });
    await b.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'deleted' });
    await send(b, message('that one', { taskId }));
    await expectDelivered('kept', taskId, ['submitted', 'working', 'completed']);
    await expectDelivered('deleted', taskId, []);
  },

  async 'extended-card'() {
    const a = await clientA();
    assert.ok((await card).supportsAuthenticatedExtendedCard, 'the card does not have one, so the client would not ask');
    const extended = await a.getAgentCard();
    assert.notEqual(extended, await card);
    assert.equal(extended.name, 'demo');
  },

  // Over HTTP, the SDK's fetch shows a credential when the server asks for one. Over gRPC, the options of a call have it.
  async auth() {
    for (const { headers, accepted } of credentials) {
      const { client, options, answers } = await unlock(headers);
      const hello = () => client.sendMessage({ message: message('echo:hello') }, options);
      const streamed = () => follow(client.sendMessageStream({ message: message('echo:hello') }, options), new Chunks());
      if (!accepted) {
        await assert.rejects(hello(), isUnauthenticated);
        await assert.rejects(streamed(), isUnauthenticated);
        continue;
      }
      assert.deepEqual(texts((await hello()).artifacts[0].parts), ['hello']);
      assert.equal(await streamed(), 'completed');
      if (job.binding !== 'grpc') {
        assert.equal(answers[0][0], 401);
        assert.match(answers[0][1], /Bearer/);
        assert.ok(answers.slice(1).every(([status]) => status === 200), JSON.stringify(answers));
      }
    }
  },

  async 'auth-card'() {
    for (const { headers, accepted } of credentials) {
      const { locked, client, options } = await unlock(headers);
      assert.deepEqual(locked.skills.map((s) => s.id), ['open']);
      if (!accepted) {
        await assert.rejects(client.getAgentCard(options), isUnauthenticated);
        continue;
      }
      assert.deepEqual((await client.getAgentCard(options)).skills.map((s) => s.id), ['open', 'hidden']);
    }
  },

  async concurrent() {
    const a = await clientA();
    const tasks = await Promise.all(Array.from({ length: 20 }, (_, i) => send(a, message(`echo:hello ${i}`))));
    tasks.forEach((task, i) => {
      assert.equal(task.status.state, 'completed');
      assert.deepEqual(texts(task.artifacts[0].parts), [`hello ${i}`]);
    });
    assert.equal(new Set(tasks.map((t) => t.id)).size, 20);
  },
});
