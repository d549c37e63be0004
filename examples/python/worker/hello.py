from holdfast_agent import Agent

agent = Agent("hello")


@agent.run
async def hello(run):
    await run.text(f"Hello, {run.message.text}!")


if __name__ == "__main__":
    agent.serve()
