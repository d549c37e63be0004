#!/usr/bin/env python3
"""An agent that accepts a run, and works on it elsewhere.

It answers the call with 202 at once and puts the run into a queue. A worker takes
it from there and posts events through the run API, which docs/executors.md describes.
Here the queue is in memory; in your system it may be any, and the worker any process.

Start it with a port (default 9000) and configure the agent with

    executor: {kind: http, http: {url: "http://127.0.0.1:9000/"}}
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

jobs = queue.Queue()


class Over(Exception):
    """The run is over: canceled, timed out, or another attempt has followed."""


class Run:
    """What an agent may do for its run, from anywhere: see docs/run-api.yaml."""

    def __init__(self, api):
        self.url, self.token = api["url"], api["token"]
        self.next = 0  # the ordinal of the next event

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, data=body)
        request.add_header("Authorization", "Bearer " + self.token)
        request.add_header("Content-Type", "application/json")
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refused:
                if refused.code == 410:
                    raise Over() from refused
                if refused.code not in (408, 429, 503):
                    raise
            except OSError:
                pass  # a cut, or a replica that went away
            time.sleep(1)

    def emit(self, *events):
        """Store events. A repetition after a cut stores nothing twice."""
        document = json.dumps({"events": events}).encode()
        self.next = self.call("POST", f"/events?from={self.next}", document)["next"]

    def go_on(self):
        """A sign of life between events."""
        if self.call("POST", "/heartbeat").get("stop"):
            raise Over()


def work(document):
    run = Run(document["runApi"])
    words = " ".join(part["text"] for part in document["message"]["parts"] if "text" in part).split()
    try:
        run.emit({"type": "status", "message": f"Reading {len(words)} words."})
        for word in words:
            run.go_on()
            run.emit({"type": "text", "text": word[::-1] + " "})
        run.emit({"type": "complete"})
    except Over:
        print("the run is over", flush=True)


def worker():
    while True:
        try:
            work(jobs.get())
        except Exception:  # a mistake in this program
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        jobs.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    for _ in range(4):
        threading.Thread(target=worker, daemon=True).start()
    port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PORT", "9000"))
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
