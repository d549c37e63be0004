"""Calls of tools that wait for a person, as a question and its answer."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_agent import Message, Run, data
from holdfast_agent._codec import YES
from holdfast_agent.content import JSON

APPROVED = "approved"
"""The member of an answer that decides about all calls."""


@dataclass
class Call:
    """A call of a tool that waits."""

    id: str
    tool: str
    arguments: JSON

    def to_json(self) -> dict[str, JSON]:
        return {"id": self.id, "tool": self.tool, "arguments": self.arguments}

    def __str__(self) -> str:
        members = self.arguments.items() if isinstance(self.arguments, dict) else [("", self.arguments)]
        args = ", ".join((f"{k}=" if k else "") + dumps(v) for k, v in members)
        return f"{self.tool}({args})"


def dumps(value: JSON) -> str:
    """JSON for a model."""
    return json.dumps(value, ensure_ascii=False)


def arguments(given: Any) -> JSON:
    """Arguments as JSON. A model may write them as text, and its text need not be JSON."""
    if not isinstance(given, str):
        return json.loads(json.dumps(given or {}, default=str))
    try:
        return json.loads(given or "{}")
    except ValueError:
        return given


async def ask(run: Run, approvals: Sequence[Call], calls: Sequence[Call] = ()) -> None:
    """Ask whether to approve the one calls, and for the results of the others."""
    lines = [f"Approve {c}?" for c in approvals] + [f"What is the result of {c}?" for c in calls]
    doc: dict[str, JSON] = {"approvals": [c.to_json() for c in approvals]}
    if calls:
        doc["calls"] = [c.to_json() for c in calls]
    only = len(approvals) == 1 and not calls
    properties: dict[str, JSON] = {APPROVED if only else c.id: {"type": "boolean", "title": str(c)} for c in approvals}
    properties.update({c.id: {"type": "string", "title": str(c)} for c in calls})
    doc["requestedSchema"] = {"type": "object", "properties": properties, "required": list(properties)}
    await run.ask(["\n".join(lines), data(doc)])


def answers(message: Message, ids: Collection[str]) -> dict[str, JSON]:
    """The answer for each id: a data part with a member for each, or one answer for all. An id that is left out gets None."""
    given: JSON = message.data if message.data is not None else message.text
    each = isinstance(given, dict) and bool(given) and set(given) <= set(ids)
    return {id: given.get(id) if each else given for id in ids}


def approved(given: JSON) -> tuple[bool, str]:
    """Whether an answer approves, and the reason if it does not."""
    if isinstance(given, dict):
        given = given.get(APPROVED)
    if isinstance(given, str):
        yes = given.strip().lower().rstrip(".!") in YES
        return yes, "" if yes else given
    return given is True, ""
