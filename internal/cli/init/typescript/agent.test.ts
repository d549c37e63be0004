import assert from "node:assert/strict";
import { test } from "node:test";
import { DevServer } from "holdfast-agent/testing";
import { greeter } from "./agent.js";

test("a conversation survives a crash", async () => {
  await using server = await DevServer.start(greeter);
  const asked = await server.send("Hi");
  assert.equal(asked.said, "What is your name?");
  await server.kill(); // as kill -9 does
  await server.start();
  assert.equal((await server.send("Ada", { task: asked.id })).text, "Hello, Ada!");
});
