// Strands Agents for TypeScript: A2AAgent, on @a2a-js/sdk 0.3.

import assert from 'node:assert/strict';
import { ClientFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { A2AAgent } from '@strands-agents/sdk/a2a';
import { absent, expectChunks, job, otherCalls, run } from '../js-common/run.mjs';

// Its own factory calls the binding that the card prefers, JSON-RPC.
const clientFactory = job.binding === 'rest' ? new ClientFactory({ transports: [new RestTransportFactory()] }) : undefined;

const remote = () => new A2AAgent({ url: job.a, clientFactory });

const noSuchCall = absent('A2AAgent has no such call');
const onlyText = absent('A2AAgent sends and shows only text');

await run({
  card: async () => {
    const agent = remote();
    await agent.invoke('echo:from the card');
    assert.deepEqual([agent.name, agent.description], ['demo', 'The agent demo.']);
  },
  send: async () => {
    assert.equal(String(await remote().invoke('echo:hello')), 'hello');
  },
  stream: async () => {
    const chunks = [];
    let result;
    for await (const event of remote().stream('chunks=20 size=64 delay=5ms')) {
      if (event.type === 'a2aResultEvent') {
        result = String(event.result);
      } else if (event.event.kind === 'artifact-update') {
        chunks.push(...event.event.artifact.parts.map((part) => part.text));
      }
    }
    expectChunks(chunks, 20, 64);
    assert.equal(result, chunks.join(''));
  },
  concurrent: async () => {
    const words = Array.from({ length: 20 }, (_, i) => `word ${i}`);
    const agent = remote();
    const answers = await Promise.all(words.map((word) => agent.invoke(`echo:${word}`)));
    assert.deepEqual(answers.map(String), words);
  },
  'multi-turn': absent('A2AAgent sends no id of a task or a context'),
  parts: onlyText,
  metadata: onlyText,
  ...otherCalls(noSuchCall),
});
