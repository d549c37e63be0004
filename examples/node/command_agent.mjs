#!/usr/bin/env node
// An agent for Holdfast's command executor: one process per message.
//
// It guesses a number that the user thinks of, one question per turn. A process
// keeps nothing between turns; the conversation itself is its memory.
// Configure the agent with
//
//     executor: {kind: command, command: {argv: ["node", "examples/node/command_agent.mjs"]}}

import { readFileSync } from "node:fs";

const emit = (type, members = {}) => console.log(JSON.stringify({ type, ...members }));

const run = JSON.parse(readFileSync(0, "utf8"));
const textOf = (message) => message.parts.map((part) => part.text ?? "").join(" ").trim();

// Replay the conversation: each of our guesses and what the user said to it.
let [low, high, guess] = [1, 100, undefined];
let said = "";
for (const message of [...(run.history ?? []), run.message]) {
  if (message.role === "agent") {
    guess = Number(textOf(message).match(/\d+/)?.[0]);
    continue;
  }
  if (guess === undefined) continue;
  said = textOf(message).toLowerCase();
  if (said === "higher") low = guess + 1;
  if (said === "lower") high = guess - 1;
}
console.error(`turn ${run.turn}: between ${low} and ${high}`);

if (said === "yes") {
  emit("text", { name: "number", text: `It is ${guess}.` });
} else if (low > high) {
  emit("fail", { message: "No number is left. One of your answers was wrong." });
} else {
  const next = Math.floor((low + high) / 2);
  emit("ask", { message: `Is it ${next}? Say yes, higher or lower.` });
}
