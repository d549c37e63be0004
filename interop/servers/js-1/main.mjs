// An agent on the server of the official JavaScript SDK 1.x: main.mjs PORT. It prints a line for each execution.

import { randomUUID } from 'node:crypto';
import { AGENT_CARD_PATH, Role, TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler } from '@a2a-js/sdk/server/express';
import express from 'express';
import { perform, release } from '../js-common/script.mjs';

const port = Number(process.argv[2]);

const part = ($case, value, more = {}) => ({ content: { $case, value }, metadata: undefined, filename: '', mediaType: '', ...more });
const make = {
  text: (text) => part('text', text),
  file: (filename, mediaType, raw) => part('raw', raw, { filename, mediaType }),
  data: (value) => part('data', value),
};

const agent = {
  async execute({ taskId, contextId, userMessage, task: existing }, bus) {
    // As in the SDK's samples: each turn begins with the task, which in a later turn is as it was before the message.
    bus.publish(AgentEvent.task(existing ?? {
      id: taskId, contextId, artifacts: [], history: [userMessage], metadata: undefined,
      status: { state: TaskState.TASK_STATE_SUBMITTED, timestamp: new Date().toISOString(), message: undefined },
    }));
    const status = (state, parts) => bus.publish(AgentEvent.statusUpdate({
      taskId, contextId, metadata: undefined,
      status: {
        state, timestamp: new Date().toISOString(),
        message: parts && {
          messageId: randomUUID(), role: Role.ROLE_AGENT, parts, taskId, contextId, extensions: [], metadata: undefined, referenceTaskIds: [],
        },
      },
    }));
    await perform(taskId, {
      working: () => status(TaskState.TASK_STATE_WORKING),
      ask: (parts) => status(TaskState.TASK_STATE_INPUT_REQUIRED, parts),
      complete: () => status(TaskState.TASK_STATE_COMPLETED),
      cancel: () => status(TaskState.TASK_STATE_CANCELED),
      artifact: (artifactId, parts, append = false) => bus.publish(AgentEvent.artifactUpdate({
        taskId, contextId, append, lastChunk: false, metadata: undefined,
        artifact: { artifactId, name: '', description: '', parts, metadata: undefined, extensions: [] },
      })),
    }, make, userMessage.parts[0].content.value, userMessage.parts, Boolean(existing));
  },
  cancelTask: async (taskId) => release(taskId),
};

const card = {
  name: 'demo', description: 'Follows the script in its message.', version: '1', provider: undefined, documentationUrl: '', signatures: [],
  supportedInterfaces: [{ url: `http://127.0.0.1:${port}/`, protocolBinding: 'JSONRPC', tenant: '', protocolVersion: '1.0' }],
  capabilities: { streaming: true, pushNotifications: true, extensions: [], extendedAgentCard: false },
  securitySchemes: {}, securityRequirements: [], defaultInputModes: ['*/*'], defaultOutputModes: ['*/*'],
  skills: [{
    id: 'demo', name: 'Demo', description: 'Follows a script.', tags: ['demo'], examples: [], inputModes: [], outputModes: [], securityRequirements: [],
  }],
};
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), agent);
const app = express();
app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: requestHandler }));
app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(port, '127.0.0.1');
