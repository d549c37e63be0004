#!/usr/bin/env node
// An agent behind Holdfast's http executor, with nothing but Node's library.
//
// It answers with server-sent events: the letters of the message in reverse, word
// by word. Closing the connection, which is how Holdfast cancels, stops it.
//
// Start it with a port (default 9000) and configure the agent with
//
//     executor: {kind: http, http: {url: "http://127.0.0.1:9000/"}}

import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const delay = Number(process.env.DELAY ?? 0); // milliseconds per word

const textOf = (message) =>
  message.parts.filter((part) => "text" in part).map((part) => part.text).join(" ");

// What the agent has to say to one message: see docs/executors.md.
async function* events(run, signal) {
  const words = textOf(run.message).split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    yield { type: "fail", message: "There is nothing to reverse." };
    return;
  }
  yield { type: "status", message: `Reversing ${words.length} words.` };
  for (const word of words) {
    await sleep(delay, undefined, { signal });
    yield { type: "text", name: "reversed", text: [...word].reverse().join("") + " " };
  }
  // Node ends its answer in a way that can be told from a crash, so no last event
  // is needed: a clean end completes the task.
}

const server = createServer(async (request, response) => {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  try {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    const run = JSON.parse(body);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    for await (const event of events(run, gone.signal)) {
      response.write(`data: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  } catch (error) {
    if (gone.signal.aborted) {
      console.log("the run was canceled");
      return;
    }
    console.error(error);
    response.destroy(); // Holdfast sees a broken connection and tries again
  }
});

const port = Number(process.argv[2] ?? process.env.PORT ?? 9000);
server.listen(port, "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/`);
});
