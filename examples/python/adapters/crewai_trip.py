"""A flow of CrewAI that asks before it books: python crewai_trip.py. The model of its crew is fake."""

import os

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")

from crewai import Agent, BaseLLM, Crew, Flow, Task
from crewai.flow import human_feedback, listen, start

from holdfast_agent.adapters.crewai import wrap


class Fake(BaseLLM):
    """Says its line, word by word."""

    def call(self, messages, tools=None, callbacks=None, available_functions=None, from_task=None, from_agent=None, **kwargs):
        for word in ("Oslo,", " by", " train."):
            self._emit_stream_chunk_event(word, from_task=from_task, from_agent=from_agent)
        return "Oslo, by train."


class Trip(Flow):
    @start()
    @human_feedback(message="Shall I book it?")
    async def plan(self):
        guide = Agent(role="guide", goal="Plan trips", backstory="You know the north.", llm=Fake(model="fake"))
        task = Task(description="Plan a trip: {message}", expected_output="A plan", agent=guide)
        plan = await Crew(agents=[guide], tasks=[task]).akickoff(inputs={"message": self.state["message"]})
        return plan.raw

    @listen(plan)
    def book(self, said):
        return f"Booked: {said.output}" if said.feedback.lower().startswith("yes") else "Then not."


agent = wrap(Trip, "trip")

if __name__ == "__main__":
    agent.serve()
