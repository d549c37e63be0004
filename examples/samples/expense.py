"""Expense reports: an agent of Google ADK that asks by a form, and gets the answer as data.

    python expense.py

The model is a fake. SAMPLES_MODEL, such as gemini-2.5-flash, with GOOGLE_API_KEY makes it a real one.
"""

import os
import re
from pathlib import Path

from a2a.types import Part, TaskArtifactUpdateEvent, TaskState
from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor
from google.adk.a2a.executor.config import A2aAgentExecutorConfig, ExecuteInterceptor
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types
from google.protobuf.json_format import MessageToDict, ParseDict

from holdfast_agent.adapters.adk import wrap

FORM = {
    "type": "object",
    "properties": {
        "date": {"type": "string", "format": "date", "title": "Date of the expense"},
        "amount": {"type": "number", "exclusiveMinimum": 0, "title": "Amount in euros"},
        "purpose": {"type": "string", "minLength": 1, "title": "Purpose"},
    },
    "required": ["date", "amount", "purpose"],
}


def ask_by_form(date: str = "", amount: float = 0, purpose: str = "", problem: str = "") -> None:
    """Show the employee a form, filled in with what is known. The result is the employee's answer.

    Args:
        date: the date of the expense as YYYY-MM-DD, or empty.
        amount: the amount in euros, or 0.
        purpose: what the expense was for, or empty.
        problem: what is wrong with the answer before, or empty.
    """


def reimburse(date: str = "", amount: float = 0, purpose: str = "") -> dict:
    """Pay an expense back. The result says whether it is approved, or what is wrong."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", str(date)):
        return {"status": "refused", "problem": f"date: {date!r} is not a date; write 2026-05-03"}
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount <= 0:
        return {"status": "refused", "problem": f"amount: {amount!r} is not a number above 0"}
    if not purpose:
        return {"status": "refused", "problem": "purpose: is empty"}
    return {"status": "approved", "date": date, "amount": amount, "purpose": purpose}


class Fake(BaseLlm):
    """Shows the form, asks again while something is wrong, then says that the money is on its way."""

    model: str = "fake"

    async def generate_content_async(self, llm_request, stream=False):
        content = types.Content(role="model", parts=[think(llm_request.contents)])
        yield LlmResponse(content=content)


def think(contents):
    last = contents[-1].parts[-1]
    if last.function_response is None:
        amount = re.search(r"\d+(\.\d+)?", last.text or "")
        return call("ask_by_form", amount=float(amount[0]) if amount else 0, purpose=last.text or "")
    said = last.function_response.response
    if last.function_response.name == "ask_by_form":
        return call("reimburse", **{name: said[name] for name in FORM["properties"] if name in said})
    if said["status"] == "refused":
        before = next(p.function_call.args for c in reversed(contents) for p in c.parts if p.function_call)
        return call("ask_by_form", **before, problem=said["problem"])
    return types.Part(text=f"{said['amount']:.2f} euros for {said['purpose']!r} on {said['date']} are approved.")


def call(name, **args):
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


async def show_form(context, event):
    """Put the form into the question: a text, and a data part that any client can read."""
    if event.status.state != TaskState.TASK_STATE_INPUT_REQUIRED:
        return event
    asked = next(MessageToDict(p.data) for p in event.status.message.parts if p.HasField("data"))
    known = {name: value for name, value in asked["args"].items() if name in FORM["properties"] and value}
    text = "Please fill in the form."
    if asked["args"].get("problem"):
        text = f"{asked['args']['problem']}. {text}"
    form = {"type": "form", "form": FORM, "form_data": known}
    for place, part in enumerate(({"text": text}, {"data": form})):
        event.status.message.parts.insert(place, ParseDict(part, Part()))
    return event


async def hide_tools(context, event, adk_event):
    """Drop the calls of tools and their results, which ADK shows as artifacts of their own."""
    tool = isinstance(event, TaskArtifactUpdateEvent) and all(p.HasField("data") for p in event.artifact.parts)
    return None if tool else event


root = LlmAgent(
    name="expense_agent",
    model=os.environ.get("SAMPLES_MODEL") or Fake(),
    instruction="You reimburse expenses of employees. Get the date, the amount and the purpose by ask_by_form, "
    "then call reimburse. If it refuses, call ask_by_form again with the problem. At the end, say what is approved.",
    tools=[LongRunningFunctionTool(ask_by_form), FunctionTool(reimburse)],
)
# A database, so that another worker knows the session. In production one that all machines share.
folder = Path(os.environ.get("SAMPLES_DATA", ".holdfast/samples"))
folder.mkdir(parents=True, exist_ok=True)
runner = Runner(app_name="expense", agent=root, session_service=SqliteSessionService(str(folder / "expense.db")))
config = A2aAgentExecutorConfig(execute_interceptors=[ExecuteInterceptor(after_event=hide_tools, after_agent=show_form)])
agent = wrap(A2aAgentExecutor(runner=runner, config=config, force_new_version=True), "expense")

if __name__ == "__main__":
    agent.serve()
