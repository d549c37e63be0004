#!/usr/bin/env python3
"""A fake of a model, with nothing but Python's library: model.py [PORT].

It speaks the part of the Chat Completions API that Holdfast's openai executor uses. It answers with what the
conversation has told it, so that you can see what a model would get.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(messages):
    """Return the model's answer to a conversation."""
    said = [m["content"] for m in messages if m["role"] == "user"]
    return f"You have said: {', then '.join(said)}."


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in answer(request["messages"]).split():
            self.send({"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]})
        self.send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.send({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}})
        self.wfile.write(b"data: [DONE]\n\n")

    def send(self, chunk):
        document = {"id": "answer-1", "object": "chat.completion.chunk", "created": 0, "model": "fake"} | chunk
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1] if len(sys.argv) > 1 else "9998")), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()
