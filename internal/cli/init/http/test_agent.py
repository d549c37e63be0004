import json
import threading
import unittest
from http.server import ThreadingHTTPServer
from urllib.request import urlopen

from agent import Handler


class AgentTest(unittest.TestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(self.server.server_close)
        threading.Thread(target=self.server.serve_forever).start()
        self.addCleanup(self.server.shutdown)

    def answer(self, turn, text):
        run = {"turn": turn, "message": {"role": "user", "parts": [{"text": text}]}}
        with urlopen(f"http://127.0.0.1:{self.server.server_port}/", json.dumps(run).encode()) as answer:
            return json.load(answer)["events"]

    def test_it_asks_and_greets(self):
        self.assertEqual(self.answer(1, "Hi"), [{"type": "ask", "message": "What is your name?"}])
        self.assertEqual(self.answer(2, "Ada"), [{"type": "text", "text": "Hello, Ada!"}])
