import os

import httpx
from holdfast_agent import Agent, Retry

agent = Agent("pay")
BANK = os.environ.get("BANK_URL", "http://127.0.0.1:9100/charges")


@agent.run
async def pay(run):
    async with httpx.AsyncClient() as http:
        try:
            paid = await http.post(BANK, json={"amount": 12}, headers={"Idempotency-Key": run.idempotency_key})
            paid.raise_for_status()
        except httpx.HTTPError as e:  # perhaps it has charged: the next try asks with the same key
            raise Retry("no answer from the bank", after=5) from e
    await run.complete(f"Paid: {paid.json()['id']}")


if __name__ == "__main__":
    agent.serve()
