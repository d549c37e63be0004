// The script that agents on official servers follow: a part of that of Holdfast's demo agent.

import { setTimeout as sleep } from 'node:timers/promises';

const sample = { greeting: 'hello', big: 12345678901234567890, float: 1.0, list: [1, 'two', null, true], a: { z: 1, a: 2 } };

/** Tasks that "hold" work until they are canceled. Each has the function that ends it. */
const held = new Map();

/** Ends a task that holds. */
export function release(taskId) {
  held.get(taskId)?.();
  held.delete(taskId);
}

/**
 * Does what a message says. task publishes events of the SDK: working, ask, artifact, complete and cancel; make builds its
 * parts.
 */
export async function perform(taskId, task, make, said, parts, answers) {
  console.log('executed', taskId, said);
  task.working();
  const [, verb, rest] = /^(\w+):(.*)$/s.exec(said) ?? [];
  const chunks = /^chunks=(\d+) size=(\d+) delay=(\d+)ms/.exec(said);
  const pause = /^sleep=(\d+)ms/.exec(said);
  if (answers) {
    task.artifact('answer', [make.text(`You answered: ${said}`)]);
  } else if (verb === 'echo') {
    task.artifact('echo', [make.text(rest)]);
  } else if (verb === 'ask') {
    task.ask([make.text(rest)]);
    return;
  } else if (said === 'hold') {
    await new Promise((resolve) => { held.set(taskId, resolve); });
    task.cancel();
    return;
  } else if (pause) {
    await sleep(Number(pause[1]));
  } else if (chunks) {
    const [count, size, delay] = chunks.slice(1).map(Number);
    for (let i = 0; i < count; i++) {
      task.artifact('chunks', [make.text(`${String(i).padStart(8, '0')} `.padEnd(size, '.'))], i > 0);
      await sleep(delay);
    }
  } else if (said === 'file') {
    task.artifact('file', [make.file('hello.txt', 'text/plain', Buffer.from('Hello from Holdfast.\n'))]);
  } else if (said === 'data') {
    task.artifact('data', [make.data(sample)]);
  } else {
    task.artifact('echo', parts);
  }
  task.complete();
}
