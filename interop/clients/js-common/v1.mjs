// The scenarios for @a2a-js/sdk 1.x, whose Client speaks A2A 1.0 over JSON-RPC, HTTP+JSON and gRPC. The lines of 1.x have
// the same calls; sdk has the modules of the one that is tried.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  Chunks, address, credentials, delivered, expectChunks, followUntilCut, isUnauthenticated, job, sampleData, sampleFile, sent,
  until, webhook, whenAsked,
} from './run.mjs';

export function scenarios(sdk) {
  const { Role, TaskState } = sdk;

  const transportWith = (options) => ({
    jsonrpc: new sdk.JsonRpcTransportFactory(options), rest: new sdk.RestTransportFactory(options), grpc: new sdk.GrpcTransportFactory(),
  })[job.binding];

  const transport = transportWith();

  // It has one transport, so that it cannot turn to another one.
  const factory = new sdk.ClientFactory({ transports: [transport] });

  const card = new sdk.DefaultAgentCardResolver().resolve(job.a);
  card.catch(() => {}); // the scenarios tell

  /** A client made from the card, as it is. */
  const clientA = async () => factory.createFromAgentCard(await card);

  /** A client made from the card, with another address in it. */
  const clientAt = async (where) => {
    const supportedInterfaces = (await card).supportedInterfaces
      .filter((i) => i.protocolBinding === transport.protocolName && i.protocolVersion === '1.0')
      .map((i) => ({ ...i, url: address(where) }));
    return factory.createFromAgentCard({ ...(await card), supportedInterfaces });
  };

  const part = ($case, value, more = {}) => ({ content: { $case, value }, metadata: undefined, filename: '', mediaType: '', ...more });

  const message = (text, more = {}) => ({
    messageId: randomUUID(), contextId: '', taskId: '', role: Role.ROLE_USER, parts: [part('text', text)],
    metadata: undefined, extensions: [], referenceTaskIds: [], ...more,
  });

  const request = (msg, configuration = {}) => ({
    tenant: '', message: msg, metadata: undefined,
    configuration: {
      acceptedOutputModes: [], taskPushNotificationConfig: undefined, historyLength: undefined, returnImmediately: false,
      ...configuration,
    },
  });

  const send = (client, msg, configuration) => client.sendMessage(request(msg, configuration));

  const get = (client, id, historyLength) => client.getTask({ tenant: '', id, historyLength });

  const list = (client, contextId, pageToken) => client.listTasks({
    tenant: '', contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageSize: 2, pageToken, historyLength: undefined,
    statusTimestampAfter: undefined, includeArtifacts: false,
  });

  const texts = (parts) => parts.map((p) => {
    assert.equal(p.content.$case, 'text');
    return p.content.value;
  });

  const first = (messages) => messages.map((m) => texts(m.parts)[0]);

  const state = (task) => task.status.state;

  const settled = (task) => [
    TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_REJECTED,
  ].includes(state(task));

  const hook = (id, taskId = '') => {
    const { url, token, credentials } = webhook(id);
    return { tenant: '', id, taskId, url, token, authentication: { scheme: 'Bearer', credentials } };
  };

  const listHooks = async (client, taskId) => {
    const { configs } = await client.listTaskPushNotificationConfig({ tenant: '', taskId, pageSize: 0, pageToken: '' });
    return configs.map((c) => c.id).sort();
  };

  /** Asserts that a webhook gets these states of a task, each once and in this order. */
  async function expectDelivered(id, taskId, states) {
    const updates = (await delivered(id, states.length)).map(({ headers, body }) => {
      assert.equal(headers['a2a-notification-token'], webhook(id).token);
      assert.equal(headers['content-type'], 'application/a2a+json');
      const { payload } = sdk.StreamResponse.fromJSON(body);
      assert.equal(payload.$case, 'statusUpdate');
      assert.equal(payload.value.taskId, taskId);
      return payload.value;
    });
    assert.deepEqual(updates.map(state), states);
  }

  /** Parts as plain values, whatever kind of bytes the transport makes. */
  const plain = (parts) => parts.map(({ content, metadata, filename, mediaType }) => ({
    kind: content.$case, value: content.$case === 'raw' ? Buffer.from(content.value).toString('hex') : content.value,
    metadata, filename, mediaType,
  }));

  /** Reads a stream to its end and returns the last state. */
  async function follow(stream, chunks, each = () => {}) {
    let last;
    for await (const { payload } of stream) {
      switch (payload.$case) {
        case 'task':
          chunks.snapshot(payload.value.artifacts.flatMap((a) => texts(a.parts)));
          last = state(payload.value);
          break;
        case 'artifactUpdate':
          chunks.update(texts(payload.value.artifact.parts), payload.value.append);
          break;
        case 'statusUpdate':
          last = state(payload.value);
          break;
        default:
          assert.fail(`event of kind ${payload.$case}`);
      }
      await each(payload);
    }
    return last;
  }

  // The keys are where the signature says.
  const verify = sdk.verifyAgentCardSignature(async (kid, jku) => {
    const { keys } = await (await fetch(jku)).json();
    return keys.find((k) => k.kid === kid);
  });

  /** A client of the server that requires a credential. answers gets what it says over HTTP. */
  async function unlock(headers) {
    const locked = await new sdk.DefaultAgentCardResolver().resolve(job.locked);
    const answers = [];
    const fetchImpl = sdk.createAuthenticatingFetchWithRetry(fetch, whenAsked(headers, answers));
    const client = await new sdk.ClientFactory({ transports: [transportWith({ fetchImpl })] }).createFromAgentCard(locked);
    return { locked, client, answers, options: job.binding === 'grpc' ? { serviceParameters: headers } : undefined };
  }

  return {
    async card() {
      const a = await clientA();
      assert.equal((await card).name, 'demo');
      assert.equal(state(await send(a, message('echo:hello'))), TaskState.TASK_STATE_COMPLETED);
      await verify(await card);
    },

    async send() {
      const task = await send(await clientA(), message('echo:hello'));
      assert.equal(state(task), TaskState.TASK_STATE_COMPLETED);
      assert.deepEqual(texts(task.artifacts[0].parts), ['hello']);
    },

    async 'return-immediately'() {
      const a = await clientA();
      const task = await send(a, message('sleep=300ms'), { returnImmediately: true });
      assert.ok(!settled(task), `state ${state(task)}`);
      const last = await until(settled, () => get(a, task.id));
      assert.equal(state(last), TaskState.TASK_STATE_COMPLETED);
    },

    async stream() {
      const a = await clientA();
      const chunks = new Chunks();
      const last = await follow(a.sendMessageStream(request(message('chunks=20 size=64 delay=5ms'))), chunks);
      assert.equal(last, TaskState.TASK_STATE_COMPLETED);
      chunks.expect(20, 64);
      chunks.expectAppends();
    },

    async get() {
      const a = await clientA();
      const { id } = await send(a, message('ask:which?'));
      await send(a, message('this one', { taskId: id }));
      const task = await get(a, id);
      assert.deepEqual(first(task.history), ['ask:which?', 'which?', 'this one']);
      assert.deepEqual(texts(task.artifacts[0].parts), ['You answered: this one']);
      assert.deepEqual(first((await get(a, id, 1)).history), ['this one']);
      assert.deepEqual(first((await get(a, id, 0)).history), []);
    },

    async list() {
      const a = await clientA();
      const { id, contextId } = await send(a, message('echo:hello'));
      const ids = [id];
      for (let i = 1; i < 3; i++) {
        ids.push((await send(a, message('echo:hello', { contextId }))).id);
      }
      const page1 = await list(a, contextId, '');
      assert.equal(page1.tasks.length, 2);
      assert.equal(page1.totalSize, 3);
      assert.notEqual(page1.nextPageToken, '');
      const page2 = await list(a, contextId, page1.nextPageToken);
      assert.equal(page2.tasks.length, 1);
      assert.equal(page2.nextPageToken, '');
      assert.deepEqual([...page1.tasks, ...page2.tasks].map((t) => t.id), ids.reverse()); // the newest first
    },

    async cancel() {
      const a = await clientA();
      const { id } = await send(a, message('hold'), { returnImmediately: true });
      await until((t) => state(t) === TaskState.TASK_STATE_WORKING, () => get(a, id));
      const task = await a.cancelTask({ tenant: '', id, metadata: undefined });
      assert.equal(state(task), TaskState.TASK_STATE_CANCELED);
      assert.equal(state(await get(a, id)), TaskState.TASK_STATE_CANCELED);
    },

    async 'multi-turn'() {
      const asked = await send(await clientA(), message('ask:which?'));
      assert.equal(state(asked), TaskState.TASK_STATE_INPUT_REQUIRED);
      assert.deepEqual(texts(asked.status.message.parts), ['which?']);
      const b = await clientAt('b');
      const task = await send(b, message('that one', { taskId: asked.id, contextId: asked.contextId }));
      assert.equal(task.id, asked.id);
      assert.equal(state(task), TaskState.TASK_STATE_COMPLETED);
      assert.match(texts(task.artifacts[0].parts)[0], /that one/);
    },

    async resubscribe() {
      const through = await clientAt('through');
      const chunks = new Chunks();
      let id;
      const stream = through.sendMessageStream(request(message('chunks=60 size=64 delay=100ms')));
      await followUntilCut((each) => follow(stream, chunks, async (payload) => {
        id ??= payload.value.id;
        await each();
      }), chunks);

      const b = await clientAt('b');
      assert.equal(await follow(b.resubscribeTask({ tenant: '', id }), chunks), TaskState.TASK_STATE_COMPLETED);
      chunks.expect(60, 64);
      expectChunks((await get(b, id)).artifacts.flatMap((a) => texts(a.parts)), 60, 64);
    },

    async parts() {
      const a = await clientA();
      const parts = [
        part('text', 'look', { metadata: { lang: 'en' } }),
        part('raw', sent.file.bytes, { filename: sent.file.name, mediaType: sent.file.mediaType }),
        part('data', sent.data),
        part('data', [1, 'two']),
      ];
      const { id } = await send(a, message('', { parts }));
      const task = await get(a, id);
      assert.deepEqual(plain(task.history[0].parts), plain(parts));
      assert.deepEqual(plain(task.artifacts[0].parts), plain(parts));

      const file = (await send(a, message('file'))).artifacts[0].parts;
      assert.deepEqual(plain(file), plain([
        part('raw', sampleFile.bytes, { filename: sampleFile.name, mediaType: sampleFile.mediaType }),
      ]));
      const data = (await send(a, message('data'))).artifacts[0].parts;
      assert.deepEqual(plain(data), plain([part('data', sampleData)]));
    },

    async metadata() {
      const a = await clientA();
      const { id } = await send(a, message('echo:hello', { metadata: sent.metadata }));
      assert.deepEqual((await get(a, id)).history[0].metadata, sent.metadata);
    },

    // Errors are told by their reason: the classes of 1.0.1 are other ones in each module, so that no error of its client is
    // an instance of those that it exports.
    async 'error-not-found'() {
      await assert.rejects(get(await clientA(), randomUUID()), { reason: 'TASK_NOT_FOUND' });
    },

    async 'error-terminal'() {
      const a = await clientA();
      const { id } = await send(a, message('echo:hello'));
      await assert.rejects(a.cancelTask({ tenant: '', id, metadata: undefined }), { reason: 'TASK_NOT_CANCELABLE' });
    },

    async 'push-config'() {
      const a = await clientA();
      const b = await clientAt('b');
      const { id: taskId } = await send(a, message('ask:which?'));
      for (const id of ['one', 'two']) {
        const set = await a.createTaskPushNotificationConfig(hook(id, taskId));
        assert.deepEqual([set.taskId, set.id, set.url], [taskId, id, webhook(id).url]);
      }
      const one = { tenant: '', taskId, id: 'one' };
      const got = await b.getTaskPushNotificationConfig(one);
      assert.deepEqual([got.taskId, got.id, got.url], [taskId, 'one', webhook('one').url]);
      assert.deepEqual(await listHooks(b, taskId), ['one', 'two']);
      await a.deleteTaskPushNotificationConfig(one);
      await a.deleteTaskPushNotificationConfig(one); // it is gone either way
      await assert.rejects(a.getTaskPushNotificationConfig(one), { reason: 'TASK_NOT_FOUND' });
      assert.deepEqual(await listHooks(a, taskId), ['two']);
    },

    async push() {
      const { TASK_STATE_SUBMITTED, TASK_STATE_WORKING, TASK_STATE_COMPLETED } = TaskState;
      const a = await clientA();
      const { id } = await send(a, message('chunks=3 size=64 delay=20ms'), {
        taskPushNotificationConfig: hook('inline'), returnImmediately: true,
      });
      await expectDelivered('inline', id, [TASK_STATE_WORKING, TASK_STATE_COMPLETED]);

      const b = await clientAt('b');
      const { id: taskId } = await send(a, message('ask:which?'));
      await a.createTaskPushNotificationConfig(hook('kept', taskId));
      await a.createTaskPushNotificationConfig(hook('deleted', taskId));
      await b.deleteTaskPushNotificationConfig({ tenant: '', taskId, id: 'deleted' });
      await send(b, message('that one', { taskId }));
      await expectDelivered('kept', taskId, [TASK_STATE_SUBMITTED, TASK_STATE_WORKING, TASK_STATE_COMPLETED]);
      await expectDelivered('deleted', taskId, []);
    },

    async 'extended-card'() {
      const a = await clientA();
      assert.ok((await card).capabilities.extendedAgentCard, 'the card does not have one, so the client would not ask');
      const extended = await a.getAgentCard(undefined, verify);
      assert.notEqual(extended, await card);
      assert.equal(extended.name, 'demo');
    },

    // Over HTTP, the SDK's fetch shows a credential when the server asks for one. Over gRPC, the options of a call have it.
    async auth() {
      for (const { headers, accepted } of credentials) {
        const { client, options, answers } = await unlock(headers);
        const hello = () => client.sendMessage(request(message('echo:hello')), options);
        const streamed = () => follow(client.sendMessageStream(request(message('echo:hello')), options), new Chunks());
        if (!accepted) {
          await assert.rejects(hello(), isUnauthenticated);
          await assert.rejects(streamed(), isUnauthenticated);
          continue;
        }
        assert.deepEqual(texts((await hello()).artifacts[0].parts), ['hello']);
        assert.equal(await streamed(), TaskState.TASK_STATE_COMPLETED);
        if (job.binding !== 'grpc') {
          assert.equal(answers[0][0], 401);
          assert.match(answers[0][1], /Bearer/);
          assert.ok(answers.slice(1).every(([status]) => status === 200), JSON.stringify(answers));
        }
      }
    },

    async 'auth-card'() {
      await verify(await (await fetch(new URL('.well-known/agent-card.json', `${job.locked}/`))).json());
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
        assert.equal(state(task), TaskState.TASK_STATE_COMPLETED);
        assert.deepEqual(texts(task.artifacts[0].parts), [`hello ${i}`]);
      });
      assert.equal(new Set(tasks.map((t) => t.id)).size, 20);
    },
  };
}
