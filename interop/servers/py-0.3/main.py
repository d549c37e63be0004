"""An agent on the server of the official Python SDK 0.3: main.py PORT. It prints a line for each execution."""

import base64
import sys
from pathlib import Path

import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import BasePushNotificationSender, InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, DataPart, FilePart, FileWithBytes, Part, TextPart
from a2a.utils import new_task

sys.path.insert(0, str(Path(__file__).parent.parent / "py-common"))
from script import perform

PORT = int(sys.argv[1])


class Make:
    def text(self, text):
        return Part(root=TextPart(text=text))

    def file(self, name, media_type, raw):
        return Part(root=FilePart(file=FileWithBytes(name=name, mime_type=media_type, bytes=base64.b64encode(raw).decode())))

    def data(self, value):
        return Part(root=DataPart(data=value))


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        if not context.current_task:
            await event_queue.enqueue_event(new_task(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        parts = context.message.parts
        await perform(task, Make(), parts[0].root.text, parts, bool(context.current_task))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="demo", description="Follows the script in its message.", version="1", url=f"http://127.0.0.1:{PORT}/",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True), default_input_modes=["*/*"], default_output_modes=["*/*"],
    skills=[AgentSkill(id="demo", name="Demo", description="Follows a script.", tags=["demo"])],
)
pushes = InMemoryPushNotificationConfigStore()
handler = DefaultRequestHandler(
    agent_executor=Agent(), task_store=InMemoryTaskStore(),
    push_config_store=pushes, push_sender=BasePushNotificationSender(httpx.AsyncClient(), pushes))
uvicorn.run(A2AStarletteApplication(card, handler).build(), host="127.0.0.1", port=PORT, log_level="warning")
