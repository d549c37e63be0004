from holdfast_agent import Agent

agent = Agent("my-agent")


@agent.run
async def answer(run):
    """Answer one message. Between two messages of a task, no process holds it."""
    if run.turn == 1:
        await run.ask("What is your name?")
    else:
        await run.text(f"Hello, {run.message.text}!")


if __name__ == "__main__":
    agent.serve()
