"""An agent on the server of the official Python SDK 0.3: main.py PORT.

It prints "executed" for each execution, so that a test can count them.
"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task

PORT = int(sys.argv[1])
PIECES = 40


def text(s):
    return [Part(root=TextPart(text=s))]


class Counter(AgentExecutor):
    async def execute(self, context, event_queue):
        print("executed", flush=True)
        said = context.get_user_input()
        if not context.current_task:
            await event_queue.enqueue_event(new_task(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work(task.new_agent_message(text("at work")))
        if said == "ask":
            await task.requires_input(task.new_agent_message(text("which?")))
            return
        if said == "count":
            for i in range(PIECES):
                await asyncio.sleep(0.02)
                await task.add_artifact(text(f"{i:08d} "), artifact_id="numbers", append=i > 0)
        else:
            await task.add_artifact(text("you said " + said))
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="Counter", description="Counts.", version="1", url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming=True), default_input_modes=["text"], default_output_modes=["text"],
    skills=[AgentSkill(id="count", name="Count", description="Counts up.", tags=["numbers"])],
)
handler = DefaultRequestHandler(agent_executor=Counter(), task_store=InMemoryTaskStore())
uvicorn.run(A2AStarletteApplication(card, handler).build(), host="127.0.0.1", port=PORT, log_level="warning")
