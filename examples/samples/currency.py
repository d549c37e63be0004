"""Currency conversion: a graph of LangGraph that streams its answer, asks, and remembers the conversation.

    python currency.py

The model is LangChain's fake one. SAMPLES_MODEL, such as gemini-2.5-flash, with GOOGLE_API_KEY makes it a real one. The rates are
fixed; RATES_URL, such as https://api.frankfurter.dev/v1, is a service with those of today.
"""

import asyncio
import json
import logging
import os
import re
import signal
from pathlib import Path

import httpx
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from langgraph.types import interrupt

from holdfast_agent import worker
from holdfast_agent.adapters.langgraph import wrap

RATES = {"EUR": 1.0, "USD": 1.08, "GBP": 0.86, "CAD": 1.5, "INR": 90.0}  # for one euro
SYSTEM = "You convert currencies, with get_exchange_rate. If you do not know both currencies, ask by ask_user. Do nothing else."


@tool
async def get_exchange_rate(currency_from: str, currency_to: str, runtime: ToolRuntime) -> str:
    """Get the exchange rate between two currencies, by their codes, such as USD and EUR."""
    runtime.stream_writer(f"Looking up the rate from {currency_from} to {currency_to}.")
    if url := os.environ.get("RATES_URL"):
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.get(f"{url}/latest", params={"base": currency_from, "symbols": currency_to})
        rate = answer.raise_for_status().json()["rates"][currency_to]
    else:
        rate = RATES[currency_to] / RATES[currency_from]
    return json.dumps({"from": currency_from, "to": currency_to, "rate": round(rate, 4)})


@tool
def ask_user(question: str) -> str:
    """Ask the user. The result is the answer."""
    return str(interrupt(question))


TOOLS = [get_exchange_rate, ask_user]


async def model(state: MessagesState, config: RunnableConfig):
    if name := os.environ.get("SAMPLES_MODEL"):
        from langchain_google_genai import ChatGoogleGenerativeAI

        chat = ChatGoogleGenerativeAI(model=name).bind_tools(TOOLS)
    else:
        answer = think(state["messages"])
        chat = GenericFakeChatModel(messages=iter([answer]), disable_streaming=bool(answer.tool_calls))
    return {"messages": [await chat.ainvoke([SystemMessage(SYSTEM), *state["messages"]], config)]}


def think(messages):
    """What the fake model answers: the next step to the rate between the two currencies that were named last."""
    last = messages[-1]
    said = [m.text for m in messages if isinstance(m, HumanMessage) or m.name == "ask_user"]
    amount = next((n[1] for text in reversed(said) if (n := re.search(r"(\d+(?:\.\d+)?) ?[A-Z]{3}\b", text))), "1")
    if isinstance(last, ToolMessage) and last.name == "get_exchange_rate":
        found = json.loads(last.text)
        converted = f"{float(amount) * found['rate']:.2f} {found['to']}"
        return AIMessage(f"{amount} {found['from']} are {converted}, at a rate of {found['rate']}.")
    codes = re.findall(r"\b[A-Z]{3}\b", said[-1])
    before = [c for text in said[:-1] for c in re.findall(r"\b[A-Z]{3}\b", text)]
    if len(codes) == 1 and before and (last.name == "ask_user" or not re.search(r"\d", said[-1])):
        codes = [rates[-1]["currency_from"] if (rates := lookups(messages)) and last.name != "ask_user" else before[-1], *codes]
    if len(codes) < 2:
        return calls("ask_user", question="To which currency?" if codes else "From which currency to which?")
    return calls("get_exchange_rate", currency_from=codes[0], currency_to=codes[1])


def lookups(messages):
    return [c["args"] for m in messages if isinstance(m, AIMessage) for c in m.tool_calls if c["name"] == "get_exchange_rate"]


def calls(name, **args):
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": os.urandom(8).hex()}])


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode(TOOLS))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")


# A database, so that another worker knows the conversation. In production one that all machines share.
folder = Path(os.environ.get("SAMPLES_DATA", ".holdfast/samples"))
folder.mkdir(parents=True, exist_ok=True)


async def main():
    async with AsyncSqliteSaver.from_conn_string(str(folder / "currency.db")) as saver:
        serving = worker(wrap(builder.compile(checkpointer=saver), "currency"))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.drain)
        await serving.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
