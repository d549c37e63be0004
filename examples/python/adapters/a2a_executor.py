"""An AgentExecutor of a2a-sdk 1.x, unchanged: python a2a_executor.py."""

from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types import Part

from holdfast_agent.adapters.a2a import wrap


class Counter(AgentExecutor):
    async def execute(self, context, event_queue):
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        for number in range(1, 6):
            await task.add_artifact([Part(text=f"{number} ")], artifact_id="numbers", append=number > 1, last_chunk=number == 5)
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


agent = wrap(Counter(), "counter")

if __name__ == "__main__":
    agent.serve()
