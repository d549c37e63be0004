"""A worker of FastA2A, which asks for a topic: python fasta2a_poet.py. FastA2A's own server would run it unchanged."""

import uuid

from fasta2a import Worker

from holdfast_agent.adapters.fasta2a import wrap


class Poet(Worker):
    async def run_task(self, params):
        task = await self.storage.load_task(params["id"])
        said = [part["text"] for message in task["history"] if message["role"] == "user" for part in message["parts"]]
        if len(said) == 1:
            question = {"role": "agent", "message_id": str(uuid.uuid4()), "parts": [{"text": "About what?"}]}
            await self.storage.update_task(params["id"], "input-required", new_messages=[question])
            return
        poem = self.build_artifacts(f"O {said[-1]},\nO {said[-1]}!")
        await self.storage.update_task(params["id"], "completed", new_artifacts=poem)

    async def cancel_task(self, params):
        pass

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return [{"artifact_id": str(uuid.uuid4()), "name": "poem", "parts": [{"text": result}]}]


agent = wrap(Poet, "poet")

if __name__ == "__main__":
    agent.serve()
