"""A workflow of LlamaIndex that asks for approval: python llama_index_trip.py."""

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from holdfast_agent.adapters.llama_index import wrap


class Trip(Workflow):
    @step
    async def plan(self, ctx: Context, event: StartEvent) -> InputRequiredEvent:
        for word in ("A train ", "to Oslo, ", "199 euros."):  # a model, say
            ctx.write_event_to_stream(Event(delta=word))
        return InputRequiredEvent(prefix="Book it?")

    @step
    async def book(self, event: HumanResponseEvent) -> StopEvent:
        return StopEvent(result="Booked." if event.response == "yes" else "Dropped.")


agent = wrap(Trip(timeout=None), "trip")

if __name__ == "__main__":
    agent.serve()
