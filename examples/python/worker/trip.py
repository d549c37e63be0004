import asyncio

from holdfast_agent import Agent, Retry

agent = Agent("trip")
DAYS = ["Arrive, and walk along the harbour.", "Take the ferry to the museums.", "Ski above the city.", "Leave."]


@agent.run
async def plan(run):
    asked = run.state()  # what an earlier turn of the task has stored
    if asked.version == 0:
        await run.set_state({"begun": run.message.text})
        await run.ask("Where to?")
        return
    begin = run.last_checkpoint or 0  # what an earlier try of this turn has written
    for day, text in enumerate(DAYS[begin:], begin + 1):
        try:
            await asyncio.sleep(0.1)  # a model, say
        except ConnectionError as e:
            raise Retry("the model is away", after=30) from e
        await run.progress(f"Day {day} of {len(DAYS)}")
        await run.text(f"{run.message.text}, day {day}: {text}\n")
        await run.checkpoint(day)  # the next try goes on here: this text stays
    await run.complete("Have a good trip.")


if __name__ == "__main__":
    agent.serve()
