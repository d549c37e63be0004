"""The programs of main.go in Python. EFFECTS is the file to which each step appends a line when it has its effect."""

import os

from holdfast_agent import Agent, StepFailed, serve

EFFECTS = os.open(os.environ["EFFECTS"], os.O_APPEND | os.O_WRONLY | os.O_CREAT)


async def step(run, name, function, **options):
    async def effect():
        _, name, nth = run.idempotency_key.rsplit("/", 2)
        os.write(EFFECTS, f"{run.task_id} {run.current.attempt} {name}#{nth}\n".encode())  # at once
        return await function()

    return await run.step(name, effect, **options)


def gives(value):
    async def function():
        return value

    return function


def said(result):
    return result.artifacts[-1].text if result.artifacts else f"{result.state} {result.error}"


async def refund(run, n):
    async def look_up():
        await run.text("Looking ")
        await run.text("it up. ")
        return "order"

    tries = []

    async def pay():
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("busy")
        return "receipt"

    order = await step(run, "look up", look_up)
    answer = await run.ask("Refund?", name="approve")
    await run.text(answer.text + ". ")
    receipt = await step(run, "refund", pay, retries=5, backoff=0.001)
    await run.sleep(0.1, name="settle")
    feedback, survey = await run.call(("below-0", "loop 3"), ("below-1", "loop 4"))
    return f"{order} {receipt} {said(feedback)} {said(survey)}"


async def loop(run, n):
    return str(sum([await step(run, "add", gives(i + 1)) for i in range(n)]))


async def nest(run, n):
    if n == 0:
        return "0"
    below = await run.call((f"below-{n - 1}", f"nest {n - 1}"))
    return await step(run, "above", gives(said(below) + str(n)))


async def asks(run, n):
    async def ask(name):
        answer = await run.ask(name + "?", name=name)
        return await step(run, "hear " + name, gives(name + answer.text))

    heard = await run.gather(ask("a"), ask("b"), ask("c"))
    last = await run.ask("Sure?", name="a")
    return " ".join(heard) + " " + last.text


async def streams(run, n):
    def stream(name):
        async def function():
            for i in range(n):
                await run.text(f"{name}{i} ")

        return step(run, name, function)

    await stream("first")
    await run.text("between ")
    await run.gather(stream("left"), stream("right"))
    await stream("last")
    return "streamed"


async def undo(run, n):
    async def pay():
        raise RuntimeError("no money")

    try:
        await step(run, "pay", pay)
    except StepFailed as e:
        return await step(run, "undo", gives("undone after ")) + e.message


async def sleep(run, n):
    for i in range(n):
        await run.sleep(0.05, name="nap")
        await step(run, "wake", gives(i))
    return "awake"


async def large(run, n):
    return str(sum([len(await step(run, "read", gives("x" * 250_000))) for _ in range(n)]))


async def program(run):
    name, _, n = run.message.text.partition(" ")
    await run.text(await globals()[name](run, int(n or 0)), name="end")


agents = []
for name in ("programs", "below-0", "below-1", "below-2"):
    agent = Agent(name, concurrency=20)
    agent.durable(program)
    agents.append(agent)
serve(*agents)
