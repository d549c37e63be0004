import unittest

from agent import agent
from holdfast_agent import testing


class AgentTest(unittest.TestCase):
    def test_a_conversation_survives_a_crash(self):
        with testing.DevServer(agent) as server:
            asked = server.send("Hi")
            self.assertEqual(asked.message.text, "What is your name?")
            server.kill()  # as kill -9 does
            server.start()
            self.assertEqual(server.send("Ada", task=asked.id).text, "Hello, Ada!")
