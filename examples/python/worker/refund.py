from dataclasses import dataclass

from holdfast_agent import Agent

agent = Agent("refund")


@dataclass
class Order:
    id: str
    total: int


@dataclass
class Approval:
    approved: bool


async def look_up(id: str) -> Order:
    return Order(id, total=5)  # asks the shop


async def pay_back(run, order: Order) -> str:
    return f"receipt-{order.id}"  # asks the bank, with run.idempotency_key


@agent.durable
async def refund(run):
    order = await run.step("look up", look_up, run.message.text)
    answer = await run.ask(f"Refund {order.total}?", schema=Approval)
    if not answer.approved:
        return "Nothing was refunded."
    receipt = await run.step("refund", pay_back, run, order, retries=5)
    await run.sleep(seconds=3)
    feedback = await run.call(("feedback", order.id))
    return f"Refunded: {receipt}. {feedback.text}"


if __name__ == "__main__":
    agent.serve()
