"""An agent on the server of the official Python SDK: python agent.py [PORT]. It knows nothing of Holdfast.

It counts to 20, and prints a line for each execution.
"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from starlette.applications import Starlette

URL = f"http://127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 9999}"


class Counter(AgentExecutor):
    async def execute(self, context, event_queue):
        print("executing:", context.get_user_input(), flush=True)
        if not context.current_task:
            await event_queue.enqueue_event(Task(
                id=context.task_id, context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED), history=[context.message]))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        for number in range(1, 21):
            await task.add_artifact([Part(text=f"{number} ")], artifact_id="numbers", append=number > 1)
            await asyncio.sleep(0.2)
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="Counter", description="Counts to 20.", version="1.0.0", capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"], default_output_modes=["text/plain"],
    skills=[AgentSkill(id="count", name="Count", description="Counts to 20.", tags=["numbers"])],
    supported_interfaces=[AgentInterface(url=f"{URL}/", protocol_binding="JSONRPC", protocol_version="1.0")],
)
handler = DefaultRequestHandler(agent_executor=Counter(), task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])
uvicorn.run(app, host="127.0.0.1", port=int(URL.rsplit(":", 1)[1]), log_level="warning")
