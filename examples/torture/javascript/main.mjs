// An agent that obeys the contract of docs/torture.md, on the official JavaScript SDK: main.mjs PORT [memory | database].
//
// The database is that of DATABASE_URL, such as postgres://user:password@host/name, with the tables that `npx a2a-db` creates.
// The name of the caller is the bearer token.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { AGENT_CARD_PATH, Role, TaskState } from '@a2a-js/sdk';
import {
  AgentEvent, DefaultExecutionEventBusManager, DefaultPushNotificationSender, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore,
} from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import express from 'express';

const port = Number(process.argv[2]);
const url = `http://127.0.0.1:${port}/`;

const text = (value) => [{ content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: 'text/plain' }];

/** The tasks that have not ended: contextId, and how to stop what runs. */
const open = new Map();

const status = (bus, taskId, contextId, state, parts) => bus.publish(AgentEvent.statusUpdate({
  taskId, contextId, metadata: undefined,
  status: {
    state, timestamp: new Date().toISOString(),
    message: parts && {
      messageId: randomUUID(), role: Role.ROLE_AGENT, parts, taskId, contextId, extensions: [], metadata: undefined, referenceTaskIds: [],
    },
  },
}));

const agent = {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const said = userMessage.parts[0].content.value;
    const stop = new AbortController();
    open.set(taskId, { contextId, stop, runs: true });
    // The SDK wants each turn to begin with the task.
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, artifacts: [], history: [userMessage], metadata: undefined,
      status: { state: TaskState.TASK_STATE_SUBMITTED, timestamp: new Date().toISOString(), message: undefined },
    }));
    const artifact = (artifactId, value, append = false, lastChunk = true) => bus.publish(AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk, metadata: undefined,
      artifact: { artifactId, name: '', description: '', parts: text(value), metadata: undefined, extensions: [] },
    }));
    status(bus, taskId, contextId, TaskState.TASK_STATE_WORKING);
    if (task) artifact(userMessage.messageId, `You said: ${said}`);
    if (said.startsWith('torture ask ')) {
      open.get(taskId).runs = false;
      status(bus, taskId, contextId, TaskState.TASK_STATE_INPUT_REQUIRED, text(said.slice('torture ask '.length)));
      return;
    }
    try {
      if (!task) await perform(said, artifact, stop.signal);
      open.delete(taskId);
      status(bus, taskId, contextId, TaskState.TASK_STATE_COMPLETED);
    } catch (error) {
      open.delete(taskId);
      if (!stop.signal.aborted) throw error;
      status(bus, taskId, contextId, TaskState.TASK_STATE_CANCELED);
    }
  },
  async cancelTask(taskId, bus) {
    if (!open.has(taskId)) return; // it has ended just now
    const { contextId, stop, runs } = open.get(taskId);
    if (runs) stop.abort();
    else status(bus, taskId, contextId, TaskState.TASK_STATE_CANCELED);
  },
};

async function perform(said, artifact, signal) {
  const [, verb, rest] = /^torture (\w+) ?(.*)$/s.exec(said) ?? [];
  if (verb === 'echo') {
    artifact('echo', rest);
  } else if (verb === 'chunks') {
    const [count, size, pause] = rest.split(' ').map(Number);
    for (let i = 0; i < count; i++) {
      if (i > 0) await sleep(pause, undefined, { signal });
      artifact('chunks', String(i).padStart(8, '0').padEnd(size, '.'), i > 0, i === count - 1);
    }
  } else if (verb === 'sleep') {
    await sleep(Number(rest), undefined, { signal });
  } else if (verb === 'hold') {
    await new Promise((_, reject) => { signal.addEventListener('abort', () => reject(signal.reason)); });
  }
}

async function stores() {
  if (process.argv[3] !== 'database') return [new InMemoryTaskStore(), new InMemoryPushNotificationStore()];
  const { Kysely, PostgresDialect } = await import('kysely');
  const { default: pg } = await import('pg');
  const { DatabasePushNotificationStore, DatabaseTaskStore } = await import('@a2a-js/sdk/server/database');
  const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: process.env.DATABASE_URL }) }) });
  return [new DatabaseTaskStore(db), new DatabasePushNotificationStore(db)];
}

const offer = (url, protocolBinding, protocolVersion) => ({ url, protocolBinding, tenant: '', protocolVersion });
const card = {
  name: 'torture', description: 'Obeys the contract of docs/torture.md.', version: '1', provider: undefined, documentationUrl: '',
  iconUrl: undefined, signatures: [],
  supportedInterfaces: [offer(url, 'JSONRPC', '1.0'), offer(`${url}rest`, 'HTTP+JSON', '1.0'), offer(url, 'JSONRPC', '0.3')],
  capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: false, extensions: [] }, securitySchemes: {},
  securityRequirements: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{
    id: 'torture', name: 'Torture', description: 'Follows a script.', tags: ['test'], examples: [], inputModes: [], outputModes: [], securityRequirements: [],
  }],
};

const [tasks, configs] = await stores();
const requestHandler = new DefaultRequestHandler(
  card, tasks, agent, new DefaultExecutionEventBusManager(), configs, new DefaultPushNotificationSender(configs));
const legacyCompat = { enabled: true };
const userBuilder = async (request) => {
  const [scheme, userName] = (request.headers.authorization ?? '').split(' ');
  return { isAuthenticated: scheme === 'Bearer', userName: scheme === 'Bearer' ? userName : '' };
};
const app = express();
app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: requestHandler }));
app.use('/rest', restHandler({ requestHandler, userBuilder }));
app.use('/', jsonRpcHandler({ requestHandler, userBuilder, legacyCompat }));
app.listen(port, '127.0.0.1');
