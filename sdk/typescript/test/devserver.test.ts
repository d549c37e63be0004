// A server for tests, with the binary that HOLDFAST_BINARY names.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { agent } from "holdfast-agent";
import { DevServer } from "holdfast-agent/testing";

const trips = agent("trips", (run) => (run.turn === 1 ? run.ask("Where to?") : `${run.message.text} it is.`));

test("a conversation goes on after kill -9 of the server", async () => {
  assert.ok(existsSync(process.env.HOLDFAST_BINARY ?? ""), "HOLDFAST_BINARY names the server: make sdk-typescript");
  const server = await DevServer.start(trips);
  try {
    const asked = await server.send("Book me a trip");
    assert.deepEqual([asked.state, asked.said], ["input-required", "Where to?"]);
    await server.kill();
    await server.start();
    const answered = await server.send("Oslo", { task: asked.id });
    assert.deepEqual([answered.state, answered.text], ["completed", "Oslo it is."]);
    await server.kill();
  } finally {
    await server.close();
  }
});

test("a server that does not start says why", async () => {
  await assert.rejects(DevServer.start("trips", { binary: "/bin/false" }), /the server did not start: it wrote nothing/);
});
