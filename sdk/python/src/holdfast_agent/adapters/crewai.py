"""Crews and flows of CrewAI.

    from holdfast_agent.adapters.crewai import wrap

    wrap(crew, "travel").serve()       # a Crew
    wrap(TravelFlow, "travel").serve()  # a class of flows

Each task of a crew is an artifact, and the models of agents stream into it. A flow's human feedback becomes a question, and
the state of the flow waits in the state of the task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from crewai import Crew, CrewOutput, Flow, TaskOutput
from crewai.flow import flow_config
from crewai.flow.async_feedback import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow import start
from crewai.flow.persistence import FlowPersistence
from pydantic import TypeAdapter

from holdfast_agent import Agent, Message, Run, data
from holdfast_agent.content import JSON

from . import _approvals

KEY = "crewai"
"""The member of the task's state with what a question needs to go on."""


def wrap(
    made: Crew | type[Flow[Any]],
    name: str | None = None,
    *,
    concurrency: int | None = None,
    inputs: Callable[[Run], dict[str, Any]] | None = None,
) -> Agent:
    """Make an agent of a crew or of a class of flows. Each run has a copy of the crew, or a flow of its own.

    inputs: the inputs of a run; default message (the text), and history (who said what, as lines).
    """
    agent = Agent(name, concurrency=concurrency)
    if isinstance(made, Crew):
        crew = made
        if any(t.human_input for t in crew.tasks):
            raise ValueError("a task with human_input reads the terminal; use a Flow with human_feedback to ask clients")

        @agent.run
        async def work(run: Run) -> None:
            await _crew(run, crew.copy(), (inputs or _inputs)(run))

        return agent
    if flow_config.hitl_provider is None:
        flow_config.hitl_provider = _Client()
    flow = made

    @agent.run
    async def answer(run: Run) -> None:
        await _flow(run, flow, inputs or _inputs)

    return agent


def _inputs(run: Run) -> dict[str, Any]:
    past = [f"{said.role}: {said.text}" for said in run.history if said.text]
    return {"message": run.message.text, "history": "\n".join(past)}


class _Client:
    """The human of a flow is the client, who answers in another turn."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow[Any]) -> str:
        raise HumanFeedbackPending(context=context)


class _Kept(FlowPersistence):
    """The state of the flow that asks."""

    persistence_type: str = "holdfast"
    state: Any = None
    context: Any = None

    def init_db(self) -> None:
        pass

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None:
        self.state = state_data

    def load_state(self, flow_uuid: str) -> Any:
        return None

    def save_pending_feedback(self, flow_uuid: str, context: PendingFeedbackContext, state_data: Any) -> None:
        self.state, self.context = state_data, context

    def load_pending_feedback(self, flow_uuid: str) -> Any:
        return self.state, self.context

    def to_json(self) -> dict[str, JSON]:
        return {"state": _plain(self.state), "context": _plain(self.context.to_dict())}

    @classmethod
    def from_json(cls, doc: Any) -> _Kept:
        return cls(state=doc["state"], context=PendingFeedbackContext.from_dict(doc["context"]))


def _plain(value: Any) -> JSON:
    doc: JSON = TypeAdapter(Any).dump_python(value, mode="json", fallback=str)
    return doc


class _Answers:
    """The text of models' answers that is for people: of agents with tools in their prompt, what is behind their thoughts."""

    def __init__(self) -> None:
        self.task: Any = None
        self.said = ""
        self.passed = 0

    def fresh(self, frame: Any) -> tuple[str, bool]:
        """The text that a frame adds, and whether it begins an answer."""
        data = frame.data
        if frame.type == "llm_call_started" or data.get("task_id") != self.task:
            self.task, self.said, self.passed = data.get("task_id"), "", 0
        if frame.type != "llm_stream_chunk" or data.get("tool_call") or data.get("call_type") == "tool_call":
            return "", False
        self.said += frame.content
        text = self.said.lstrip()
        begin = len(self.said) - len(text)
        if any(text.startswith(word[: len(text)]) for word in ("Thought:", "Action:", "Final Answer:")):
            _, mark, text = text.partition("Final Answer:")
            text = text.lstrip() if mark else ""
            begin = len(self.said) - len(text)
        piece = self.said[max(self.passed, begin) :]
        first = self.passed == 0
        if piece:
            self.passed = len(self.said)
        return piece, first


class _Kickoff(Flow[dict[str, Any]]):
    """Runs a crew, because only flows stream which task a piece of text belongs to."""

    def __init__(self, crew: Crew, inputs: dict[str, Any]) -> None:
        super().__init__(suppress_flow_events=True)
        self._crew = crew
        self._given = inputs

    @start()
    async def kickoff_crew(self) -> Any:
        self._crew.stream = True
        out: Any = await self._crew.akickoff(inputs=self._given)
        async with contextlib.aclosing(out):
            async for _ in out:
                pass
        return out.result


async def _crew(run: Run, crew: Crew, inputs: dict[str, Any]) -> None:
    names = {str(t.id): t.name or f"task-{n}" for n, t in enumerate(crew.tasks, 1)}
    quiet = {str(t.id) for t in crew.tasks if t.output_pydantic or t.output_json}
    answers = _Answers()
    sent: dict[str, str] = {}
    flow = _Kickoff(crew, inputs)
    session = flow.astream()
    async with session:
        async for frame in session:
            piece, first = answers.fresh(frame)
            if piece and answers.task in names and answers.task not in quiet:
                name = names[answers.task]
                if first and name in sent:
                    piece = "\n" + piece
                await run.text(piece, name=name, append=name in sent)
                sent[name] = sent.get(name, "") + piece
    result: CrewOutput = session.result
    for name, output in zip(names.values(), result.tasks_output, strict=True):
        await _result(run, name, output, sent.get(name))


async def _result(run: Run, name: str, output: TaskOutput, sent: str | None) -> None:
    doc = output.pydantic if output.pydantic is not None else output.json_dict
    if doc is not None:
        await run.artifact(data(_plain(doc)), name=name, id=f"{name}-{run.turn}")
    elif sent is None or sent.strip() != output.raw.strip():
        await run.text(output.raw, name=name, append=False)


async def _flow(run: Run, made: type[Flow[Any]], inputs: Callable[[Run], dict[str, Any]]) -> None:
    stored = run.state().data
    pending: Any = stored.get(KEY) if isinstance(stored, dict) else None
    if pending is not None and pending["turn"] == run.turn:  # an earlier try came so far
        await _ask(run, PendingFeedbackContext.from_dict(pending["flow"]["context"]))
        return
    sent = ""
    if pending is not None and pending["turn"] == run.turn - 1:
        kept = _Kept.from_json(pending["flow"])
        result = await made.from_pending(kept.context.flow_id, kept).resume_async(_feedback(run.message))
    else:
        kept = _Kept()
        answers = _Answers()
        session = made(persistence=kept).astream(inputs=inputs(run))
        async with session:
            async for frame in session:
                piece, first = answers.fresh(frame)
                if piece:
                    piece = ("\n" if first and sent else "") + piece
                    sent += piece
                    await run.text(piece)
        result = session.result
    if isinstance(result, HumanFeedbackPending):
        others = stored if isinstance(stored, dict) else {}
        await run.set_state({**others, KEY: {"turn": run.turn, "flow": kept.to_json()}})
        await _ask(run, result.context)
        return
    if isinstance(result, CrewOutput):
        result = result.pydantic or result.json_dict or result.raw
    if isinstance(result, str):
        if result and not sent.endswith(result):
            await run.text(("\n" if sent else "") + result)
    elif result is not None:
        await run.artifact(data(_plain(result)), name="result", id=f"result-{run.turn}")


def _feedback(message: Message) -> str:
    return message.text or (_approvals.dumps(message.data) if message.data is not None else "")


async def _ask(run: Run, context: PendingFeedbackContext) -> None:
    output = _plain(context.method_output)
    lines = [context.message, *([output] if isinstance(output, str) and output else [])]
    doc: dict[str, JSON] = {} if isinstance(output, str) or output is None else {"output": output}
    if context.emit:
        doc["outcomes"] = list(context.emit)
    await run.ask(["\n".join(lines), *([data(doc)] if doc else [])])
