// An agent on the server of the official JavaScript SDK 0.3: main.mjs PORT. It prints a line for each execution.

import { randomUUID } from 'node:crypto';
import { AGENT_CARD_PATH } from '@a2a-js/sdk';
import { DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler } from '@a2a-js/sdk/server/express';
import express from 'express';
import { perform, release } from '../js-common/script.mjs';

const port = Number(process.argv[2]);

const make = {
  text: (text) => ({ kind: 'text', text }),
  file: (name, mimeType, raw) => ({ kind: 'file', file: { name, mimeType, bytes: raw.toString('base64') } }),
  data: (data) => ({ kind: 'data', data }),
};

const agent = {
  async execute({ taskId, contextId, userMessage, task: existing }, bus) {
    if (!existing) {
      bus.publish({
        kind: 'task', id: taskId, contextId, history: [userMessage], status: { state: 'submitted', timestamp: new Date().toISOString() },
      });
    }
    const status = (state, final, parts) => bus.publish({
      kind: 'status-update', taskId, contextId, final,
      status: {
        state, timestamp: new Date().toISOString(),
        message: parts && { kind: 'message', messageId: randomUUID(), role: 'agent', parts, taskId, contextId },
      },
    });
    await perform(taskId, {
      working: () => status('working', false),
      ask: (parts) => status('input-required', true, parts),
      complete: () => status('completed', true),
      cancel: () => status('canceled', true),
      artifact: (artifactId, parts, append = false) => bus.publish({
        kind: 'artifact-update', taskId, contextId, append, artifact: { artifactId, parts },
      }),
    }, make, userMessage.parts[0].text, userMessage.parts, Boolean(existing));
    bus.finished();
  },
  cancelTask: async (taskId) => release(taskId),
};

const card = {
  name: 'demo', description: 'Follows the script in its message.', version: '1', protocolVersion: '0.3.0',
  url: `http://127.0.0.1:${port}/`, capabilities: { streaming: true, pushNotifications: true }, defaultInputModes: ['*/*'], defaultOutputModes: ['*/*'],
  skills: [{ id: 'demo', name: 'Demo', description: 'Follows a script.', tags: ['demo'] }],
};
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), agent);
const app = express();
app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: requestHandler }));
app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(port, '127.0.0.1');
