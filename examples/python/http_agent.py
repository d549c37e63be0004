#!/usr/bin/env python3
"""An agent behind Holdfast's http executor, with nothing but Python's library.

It asks which way to write a text, then streams it back word by word:

    client:  hello world
    agent:   Shall I write it in upper or lower case?
    client:  upper
    agent:   HELLO WORLD

Start it with a port (default 9000) and configure the agent with

    executor: {kind: http, http: {url: "http://127.0.0.1:9000/"}}
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STYLES = {"upper": str.upper, "lower": str.lower}


def text_of(message):
    return " ".join(part["text"] for part in message["parts"] if "text" in part)


def events(run):
    """Yield what the agent has to say to one message: see docs/executors.md."""
    if run["turn"] == 1:
        yield {"type": "ask", "message": "Shall I write it in upper or lower case?"}
        return
    style = STYLES.get(text_of(run["message"]).strip().lower())
    if style is None:
        yield {"type": "ask", "message": "Please answer upper or lower."}
        return
    first = next(m for m in run["history"] if m["role"] == "user")
    words = text_of(first).split()
    yield {"type": "status", "message": f"Writing {len(words)} words."}
    for word in words:
        yield {"type": "text", "name": "answer", "text": style(word) + " "}
    yield {"type": "complete"}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        run = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        # This server marks the end of its answer by closing the connection, so
        # the last event has to say that it is the last: ask or complete.
        for event in events(run):
            self.wfile.write(json.dumps(event).encode() + b"\n")

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PORT", "9000"))
    host = os.environ.get("HOST", "127.0.0.1")  # 0.0.0.0 in a container
    server = ThreadingHTTPServer((host, port), Handler)
    print(f"listening on http://{host}:{server.server_port}/", flush=True)
    server.serve_forever()
