"""An agent on the server of the official Python SDK 1.x: main.py PORT.

It prints "executed" for each execution, so that a test can count them.
"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Role, Task, TaskState, TaskStatus
from starlette.applications import Starlette

PORT = int(sys.argv[1])
PIECES = 40


class Counter(AgentExecutor):
    async def execute(self, context, event_queue):
        print("executed", flush=True)
        said = context.get_user_input()
        if not context.current_task:
            await event_queue.enqueue_event(Task(
                id=context.task_id, context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED), history=[context.message]))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work(task.new_agent_message([Part(text="at work")]))
        if said == "ask":
            await task.requires_input(task.new_agent_message([Part(text="which?")]))
            return
        if said == "count":
            for i in range(PIECES):
                await asyncio.sleep(0.02)
                await task.add_artifact([Part(text=f"{i:08d} ")], artifact_id="numbers", append=i > 0)
        else:
            await task.add_artifact([Part(text="you said " + said)])
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="Counter", description="Counts.", version="1", capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text"], default_output_modes=["text"],
    skills=[AgentSkill(id="count", name="Count", description="Counts up.", tags=["numbers"])],
    supported_interfaces=[AgentInterface(url=f"http://127.0.0.1:{PORT}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")],
)
handler = DefaultRequestHandler(agent_executor=Counter(), task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
