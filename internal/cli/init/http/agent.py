import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(run):
    """Answer one message with events. Between two messages of a task, no process holds it."""
    if run["turn"] == 1:
        return [{"type": "ask", "message": "What is your name?"}]
    return [{"type": "text", "text": f"Hello, {run['message']['parts'][0]['text']}!"}]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        run = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        events = json.dumps({"events": answer(run)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(events)))
        self.end_headers()
        self.wfile.write(events)


if __name__ == "__main__":
    address = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "9000"))
    ThreadingHTTPServer(address, Handler).serve_forever()
