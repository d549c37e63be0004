"""Agents in Python for Holdfast, a durable server for the Agent2Agent protocol.

    from holdfast_agent import Agent

    agent = Agent("hello")

    @agent.run
    async def hello(run):
        await run.text(f"Hello, {run.message.text}!")

    agent.serve()

The worker connects to the server and claims runs; it needs no address of its own. The guide is docs/agents/python.md.
"""

from ._agent import Agent, connect, serve, worker
from ._durable import DurableRun
from ._logs import RunFilter
from ._run import History, Reference, Run, RunInfo, SyncRun
from ._version import VERSION as __version__
from ._worker import Worker
from .content import (
    JSON,
    Artifact,
    ArtifactInfo,
    Call,
    Input,
    Message,
    MessageLike,
    Part,
    PartLike,
    Result,
    Resume,
    Said,
    Scope,
    State,
    TaskInfo,
    data,
    file,
    text,
    url,
)
from .errors import (
    CodeChanged,
    ConnectError,
    Ended,
    EventRefused,
    Fail,
    NotFound,
    Problem,
    Reject,
    Retry,
    StateChanged,
    StepFailed,
    Stopped,
    Unreachable,
)

__all__ = [
    "JSON",
    "Agent",
    "Artifact",
    "ArtifactInfo",
    "Call",
    "CodeChanged",
    "ConnectError",
    "DurableRun",
    "Ended",
    "EventRefused",
    "Fail",
    "History",
    "Input",
    "Message",
    "MessageLike",
    "NotFound",
    "Part",
    "PartLike",
    "Problem",
    "Reference",
    "Reject",
    "Result",
    "Resume",
    "Retry",
    "Run",
    "RunFilter",
    "RunInfo",
    "Said",
    "Scope",
    "State",
    "StateChanged",
    "StepFailed",
    "Stopped",
    "SyncRun",
    "TaskInfo",
    "Unreachable",
    "Worker",
    "__version__",
    "connect",
    "data",
    "file",
    "serve",
    "text",
    "url",
    "worker",
]
