// a2a-ai-provider: a remote agent as a model of Vercel's AI SDK.

import assert from 'node:assert/strict';
import { generateText, streamText } from 'ai';
import { a2a } from 'a2a-ai-provider';
import { absent, expectChunks, job, otherCalls, run, sampleFile, sent } from '../js-common/run.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false; // it says for each call that the provider has the interface of AI SDK 5

const remote = (base = job.a) => a2a(`${base}/.well-known/agent-card.json`);

const generate = (prompt, base) => generateText({ model: remote(base), ...(typeof prompt === 'string' ? { prompt } : { messages: prompt }) });

const files = ({ files }) => files.map(({ uint8Array, mediaType }) => ({ bytes: Buffer.from(uint8Array), mediaType }));

const noSuchCall = absent('a model sends messages and reads the answer');

await run({
  card: async () => {
    for (const base of [job.a, job.b]) {
      assert.equal((await generate('echo:from the card', base)).text, 'from the card');
    }
  },
  send: async () => {
    const { text, response } = await generate('echo:hello');
    assert.equal(text, 'hello');
    assert.equal(response.body.status.state, 'completed');
    assert.equal((await generate('ask:which?')).text, 'which?');
  },
  stream: async () => {
    const { textStream, finishReason } = streamText({ model: remote(), prompt: 'chunks=20 size=64 delay=5ms' });
    const chunks = [];
    for await (const text of textStream) {
      chunks.push(text);
    }
    expectChunks(chunks, 20, 64);
    assert.equal(await finishReason, 'stop');
  },
  parts: async () => {
    const { bytes, mediaType } = sent.file;
    const content = [{ type: 'text', text: 'look at this' }, { type: 'file', data: bytes, mediaType }];
    const answer = await generate([{ role: 'user', content }]);
    assert.equal(answer.text, 'look at this');
    assert.deepEqual(files(answer), [{ bytes, mediaType }]);
    assert.deepEqual(files(await generate('file')), [{ bytes: sampleFile.bytes, mediaType: sampleFile.mediaType }]);
  },
  concurrent: async () => {
    const words = Array.from({ length: 20 }, (_, i) => `word ${i}`);
    const answers = await Promise.all(words.map((word) => generate(`echo:${word}`)));
    assert.deepEqual(answers.map(({ text }) => text), words);
  },
  'multi-turn': absent('a model sends no id of a task'),
  metadata: absent('a model sends no metadata'),
  ...otherCalls(noSuchCall),
});
