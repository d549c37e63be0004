"""Durable agents: a function that begins at its top in every try and turn, and gets back what it has recorded.

Records return in the order in which they were made, one after the other, each when what the one before it set off has come to
rest. So branches that run at once meet the same occurrence of a name in each replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import random
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import FrameType
from typing import Any, cast

from ._codec import dump, load, returned, schema_of, understood
from ._run import Run, _raised
from .content import JSON, Artifact, Call, Message, MessageLike, Part, PartLike, Result, Resume, State, decode, encode, to_message
from .content import time as parse_time
from .errors import CodeChanged, EventRefused, Fail, Problem, Reject, Retry, StepFailed, Stopped, too_large

Key = tuple[str, int]
Function = Callable[["DurableRun"], Awaitable[Any]]

QUIET = 10
"""Rounds of the event loop without a change, after which what a record set off has come to rest."""
PATIENCE = 10.0
"""Seconds for a branch that awaits something else than a word of the run, while all others wait."""
IN_PROCESS = 5.0
"""The longest pause of a retried step, in seconds, that keeps the process. Longer ones end the run."""
LONGEST = 60.0
KEPT_AS = {"version": "value"}
WAITS = frozenset({"ask", "auth", "call", "sleep"})
_HERE = os.path.dirname(__file__) + os.sep
_ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep


class Suspended(BaseException):
    """The run has ended, and the function goes on in the next turn. Let it pass."""


@dataclass
class Step:
    """A step under way."""

    name: str
    nth: int
    own: bool
    """It writes to artifacts of its own, because another step was under way when it began."""
    wrote: set[str] = field(default_factory=set)
    unnamed: int = 0


@dataclass(eq=False)
class Word:
    """What a branch of the function awaits."""

    kind: str
    key: Key
    place: str
    task: asyncio.Task[Any] | None
    future: asyncio.Future[dict[str, JSON] | None]
    message: Message = field(default_factory=Message)
    schema: dict[str, JSON] | None = None
    hint: Any = None
    resume: Resume | bool | None = None
    call: Call | None = None
    deadline: datetime | None = None


_run: contextvars.ContextVar[DurableRun | None] = contextvars.ContextVar("holdfast_durable", default=None)
_step: contextvars.ContextVar[Step | None] = contextvars.ContextVar("holdfast_step", default=None)


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    """Let runs know the tasks that their functions create."""
    before = loop.get_task_factory()
    if getattr(before, "durable", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        made: asyncio.Future[Any] = before(loop, coro, **options) if before else asyncio.Task(coro, loop=loop, **options)
        run = _run.get()
        if run is not None and _step.get() is None:
            run._adopt(cast("asyncio.Task[Any]", made))
        return made

    factory.durable = True  # type: ignore[attr-defined]
    loop.set_task_factory(factory)


class Durable:
    """The handler of a durable function."""

    def __init__(self, function: Function, *, dry: bool = False) -> None:
        self._function = function
        self._dry = dry

    async def __call__(self, run: Run) -> None:
        durable = DurableRun(run, dry=self._dry)
        await durable._open()
        driver = asyncio.create_task(durable._drive())
        _watch(asyncio.get_running_loop())
        token = _run.set(durable)
        try:
            given = await self._function(durable)
            if not durable._over:
                durable._left_over()
                if isinstance(given, str):
                    await durable.text(given)
                elif given is not None:
                    await durable.artifact(*to_message(given).parts, name="result")
        except BaseException:
            if not durable._over:
                raise
        finally:
            _run.reset(token)
            durable._over = True
            driver.cancel()
            for task in list(durable._tasks):
                task.cancel()
        if durable._fatal is not None:
            raise durable._fatal
        if not run.ended and run.stop_reason is not None:
            raise asyncio.CancelledError


class DurableRun:
    """A run of a durable agent. What its words return is recorded, and returned at once in later tries and turns."""

    def __init__(self, run: Run, *, dry: bool = False) -> None:
        self.current = run
        """The run of this try. What it has may differ in the next one: use it in steps."""
        self.log = run.log
        self.task_id, self.task_key = run.task_id, run.task_key
        self.context_id, self.context_key = run.context_id, run.context_key
        self.agent, self.tenant, self.owner, self.metadata = run.agent, run.tenant, run.owner, run.metadata
        self.message = run.message
        """The message that began the task, in each turn."""
        self._dry = dry
        self._history: list[dict[str, JSON]] = []
        self._cursor = 0
        self._last: dict[str, JSON] = {}
        self._index: dict[Key, dict[str, JSON]] = {}  # records that no word has got yet
        self._names: dict[str, int] = {}
        self._words: dict[Key, Word] = {}
        self._gone: set[Key] = set()  # words that were canceled before they got their record
        self._slept: set[Key] = set()
        self._answered: set[Key] = set()
        self._wrong: dict[Key, str] = {}
        self._turn = 1  # of what the function emits now
        self._unnamed: dict[int, int] = {}
        self._counts: dict[str, int] = {}
        self._skip: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._steps: list[Step] = []
        self._lock = asyncio.Lock()  # is fair: records resume their branches in the order in which they are made
        self._main = asyncio.current_task()
        self._tasks: dict[asyncio.Task[Any], asyncio.Task[Any] | None] = {}  # of the function, with their parents
        self._busy = 0
        self._changes = 0
        self._kick = asyncio.Event()
        self._over = False
        self._fatal: BaseException | None = None

    @property
    def canceled(self) -> bool:
        """The client has canceled the task."""
        return self.current.canceled

    @property
    def cancel_metadata(self) -> dict[str, JSON]:
        """Of the request that canceled the task."""
        return self.current.cancel_metadata

    @property
    def idempotency_key(self) -> str:
        """In a step: the same in each try of it, and of no other step. Pass it to services with side effects."""
        step = _step.get()
        return f"{self.task_key}/{step.name}/{step.nth}" if step else self.task_key

    # What the function emits.

    async def text(self, text: str, *, name: str | None = None, artifact_id: str | None = None, last: bool | None = None) -> None:
        """Add text to an artifact. Texts of one name are one artifact. Steps that run at once write to one each."""
        id = self._artifact_id(artifact_id or f"{name or 'text'}-{self._turn}")
        await self._emit(id, lambda: self.current.text(text, name=name, artifact_id=id, last=last))

    async def artifact(self, *parts: PartLike | Artifact, name: str | None = None, id: str | None = None, **options: Any) -> None:
        """Emit an artifact, as in other runs."""
        given = id or (parts[0].id if len(parts) == 1 and isinstance(parts[0], Artifact) else None)
        if given is None:
            step = _step.get()
            if step is not None:
                step.unnamed += 1
                given = f"{name or 'artifact'}-{self._turn}-{step.name}-{step.nth}-{step.unnamed}"
                step.wrote.add(given)
            else:
                n = self._unnamed[self._turn] = self._unnamed.get(self._turn, 0) + 1
                given = f"{name or 'artifact'}-{self._turn}-{n}"
        else:
            given = self._artifact_id(given)
        if len(parts) == 1 and isinstance(parts[0], Artifact):
            parts = (Artifact(**{**vars(parts[0]), "id": given}),)
        await self._emit(given, lambda: self.current.artifact(*parts, name=name, id=given, **options))

    async def status(self, message: MessageLike | None = None, *, metadata: dict[str, JSON] | None = None) -> None:
        """Report progress. Without a message it is a sign of life."""
        await self._emit("status", lambda: self.current.status(message, metadata=metadata))

    progress = status

    def _artifact_id(self, id: str) -> str:
        step = _step.get()
        if step is None:
            return id
        if step.own:
            id = f"{id}-{step.name}-{step.nth}"
        step.wrote.add(id)
        return id

    async def _emit(self, key: str, put: Callable[[], Awaitable[None]]) -> None:
        """Emit, unless the function has emitted this one in an earlier try or turn."""
        outside = _step.get() is None
        if outside:
            self._alive()
        with self._working():
            async with self._lock:
                n = self._counts.get(key, 0) + outside
                if outside and n <= self._skip.get(key, 0):
                    self._counts[key] = n
                    return
                if not self._dry:
                    await put()
                if outside:
                    self._counts[key] = n

    # What is recorded.

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retries: int = 0,
        backoff: float = 1.0,
        timeout: float | None = None,
        final: type[Exception] | tuple[type[Exception], ...] = (),
        returns: Any = None,
    ) -> Any:
        """Call a function once, and record what it returns. At least once: it may run again if its record was lost.

        A plain function gets a thread. What it returns is JSON, or what its annotation (or `returns`) says: dataclasses and
        models of pydantic. An error is retried `retries` times, except for errors in `final`; StepFailed is raised then.
        """
        key = self._next(name)
        tries = 0
        for n in range(1, retries + 1):  # the pauses that ended a run
            pause: Key = (f"{name[:150]}#{key[1]} retry {n}", 1)
            if pause in self._slept or pause in self._index:
                await self._word("sleep", pause, deadline=_now())
                tries = n
        record = await self._word("step", key)
        while record is None:
            tries += 1
            began = time.monotonic()
            # As in an earlier try of this turn, whose artifact it replaces.
            again = any(a.id.endswith(f"-{key[0]}-{key[1]}") for a in self.current.earlier)
            step = Step(*key, own=again or bool(self._steps))
            self._steps.append(step)
            try:
                with self._working():
                    await self.current.flush()  # no effect before what it depends on is stored
                    data = dump(await _attempt(step, function, args, timeout))
                    record = await self._record("step", key, step, data=data, tries=tries, took=_since(began))
            except (Retry, Stopped):
                raise
            except Exception as e:
                if tries > retries or isinstance(
                    e, (Fail, Reject, EventRefused, *(final if isinstance(final, tuple) else (final,)))
                ):
                    with self._working():
                        record = await self._record("step", key, step, error=_raised(e), tries=tries, took=_since(began))
                    raise self._failed(record) from e
                self.log.info("a step failed, will retry", extra={"step": name, "error": repr(e), "tries": tries})
            finally:
                self._steps.remove(step)
            seconds = min(backoff * 2.0 ** (tries - 1), LONGEST)
            if record is None and seconds > IN_PROCESS:
                pause = (f"{name[:150]}#{key[1]} retry {tries}", 1)
                await self._word("sleep", pause, deadline=_now() + timedelta(seconds=seconds))
            elif record is None:
                with self._working():
                    await asyncio.sleep(seconds)
        if record.get("error") is not None:
            raise self._failed(record)
        return load(returned(function) if returns is None else returns, record.get("data"))

    def _failed(self, record: dict[str, JSON]) -> Exception:
        error = record["error"]
        kind, message = error.get("type") or "", error.get("message") or ""
        known = {"Fail": Fail, "Reject": Reject}.get(kind)
        return known(message) if known else StepFailed(record["name"], kind, message)

    async def ask(self, message: MessageLike, *, schema: Any = None, name: str = "ask", resume: Resume | bool | None = None) -> Any:
        """Ask the client. Return the answer: a Message, or with `schema` what that says.

        schema: a dataclass, a model of pydantic or a JSON Schema; the question is a form then. An answer that does not fit
        is asked for again. Questions that wait at once are one form.
        """
        form = None if schema is None else schema_of(schema)
        record = await self._word("ask", self._next(name), message=to_message(message), schema=form, hint=schema, resume=resume)
        assert record is not None
        return Message.from_json(record["data"]) if schema is None else load(schema, record["data"])

    async def auth(
        self, message: MessageLike = "Please authenticate.", *, name: str = "auth", resume: Resume | bool | None = None
    ) -> Message:
        """Wait until the client has authenticated."""
        record = await self._word("auth", self._next(name), message=to_message(message), resume=resume)
        assert record is not None
        return Message.from_json(record["data"])

    async def call(self, *calls: Call | tuple[str, MessageLike]) -> Any:
        """Call other agents at once. Return the Result of one call, or a list of them."""
        if not calls:
            raise ValueError("call takes at least one (agent, message) or Call")
        made = [c if isinstance(c, Call) else Call(c[1], agent=c[0]) for c in calls]
        results = await self.gather(*(self._call(c) for c in made))
        return results[0] if len(results) == 1 else results

    async def _call(self, call: Call) -> Result:
        record = await self._word("call", self._next(call.agent or call.task or ""), call=call)
        assert record is not None
        return Result.from_json(record["data"])

    async def sleep(
        self,
        seconds: float = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | None = None,
        name: str = "sleep",
    ) -> None:
        """Wait, for years if need be: without a process."""
        if until is not None and until.tzinfo is None:
            raise ValueError("sleep: until needs a time zone; write datetime.now(timezone.utc) + timedelta(hours=1)")
        deadline = until or _now() + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        await self._word("sleep", self._next(name), deadline=deadline.astimezone(timezone.utc))

    async def gather(self, *branches: Awaitable[Any]) -> list[Any]:
        """Run branches at once, as asyncio.gather does."""
        return list(await asyncio.gather(*branches))

    async def now(self) -> datetime:
        """The time, as it was here at first."""
        return cast(datetime, parse_time(await self._value("now", lambda: _now().isoformat())))

    async def random(self) -> float:
        """A random number, the same in each replay."""
        return float(await self._value("random", random.random))

    async def uuid(self) -> str:
        """A new UUID, the same in each replay."""
        return str(await self._value("uuid", lambda: str(uuid.uuid4())))

    async def state(self, scope: Any = "task") -> State:
        """Read a stored value, as it was here at first."""
        stored = await self._value(f"state of the {scope}", lambda: self.current.get_state(scope))
        return State(stored["data"], stored["version"])

    async def set_state(self, data: JSON, scope: Any = "task") -> int:
        """Store a value for other runs of the task or the context, and return its version."""
        return int(await self._value(f"set the state of the {scope}", lambda: self.current.set_state(data, scope)))

    async def version(self, name: str) -> bool:
        """Whether to run the new code: False in a task that has passed this place before the code had it."""
        record = await self._word("version", self._next(f"version {name}"))
        if record is None:
            with self._working():
                record = await self._record("value", (f"version {name}", self._names[f"version {name}"]), data=True)
        return bool(record["data"])

    async def shield(self, branch: Awaitable[Any]) -> Any:
        """Finish a branch, although the task is canceled meanwhile."""
        task = asyncio.ensure_future(branch)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await asyncio.wait({task})
            raise

    async def _value(self, name: str, make: Callable[[], Any]) -> JSON:
        key = self._next(name)
        record = await self._word("value", key)
        if record is None:
            with self._working():
                made = make()
                record = await self._record("value", key, data=dump(await made if inspect.isawaitable(made) else made))
        return record["data"]

    # Words and their records.

    def _next(self, name: str) -> Key:
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise ValueError(f"name: {name!r} is not a text of 1 to 200 characters")
        self._alive()
        if _step.get() is not None:
            raise RuntimeError(f"{name!r} is in a step: a step is done at once; call it in the function")
        self._names[name] = nth = self._names.get(name, 0) + 1
        return name, nth

    def _alive(self) -> None:
        if self._over or self.current.stop_reason not in (None, "canceled"):
            self._over = True
            raise Suspended

    def _free(self) -> bool:
        """After a cancel the order no longer matters: nobody replays the task."""
        return self.current.canceled

    async def _word(self, kind: str, key: Key, **members: Any) -> dict[str, JSON] | None:
        """Return the record of a word; None: it is to be worked for now."""
        self._alive()
        task = asyncio.current_task()
        word = Word(kind, key, _place(), task, asyncio.get_running_loop().create_future(), **members)
        record = self._index.get(key)
        if record is not None and record["kind"] != KEPT_AS.get(kind, kind):
            self._fail(_changed(record, word))
            raise Suspended
        alone = task is self._main and not self._tasks
        if record is not None and (self._free() or (alone and self._at() is record)):
            return self._take(key)
        if record is None and (self._free() or self._at() is None) and not self._dry:
            if kind not in WAITS:
                return None
            if self._free():
                raise asyncio.CancelledError("a canceled task does not wait")
        self._words[key] = word
        self._change()
        try:
            return await word.future
        except asyncio.CancelledError:
            self._gone.add(key)
            raise
        finally:
            self._words.pop(key, None)
            self._change()

    def _at(self) -> dict[str, JSON] | None:
        """The record that comes next in the replay."""
        while self._cursor < len(self._history):
            record = self._history[self._cursor]
            key = (record["name"], record["nth"])
            if record["kind"] != "message" and (record["kind"] == "wait" or (key not in self._gone and key in self._index)):
                return record
            self._cursor += 1
        return None

    def _take(self, key: Key) -> dict[str, JSON]:
        return self._index.pop(key)  # _at moves on

    async def _record(self, kind: str, key: Key, done: Step | None = None, **members: JSON) -> dict[str, JSON]:
        async with self._lock:
            record: dict[str, JSON] = {"kind": kind, "name": key[0], "nth": key[1], **members}
            open = sorted({id for s in self._steps if s is not done for id in s.wrote})
            for id in {*self._counts, *self._skip} - set(open):
                self._kept[id] = max(self._counts.get(id, 0), self._skip.get(id, 0))
            record["emitted"] = dict(self._kept)
            if open:
                record["open"] = open
            what = f"the record of {key[0]!r}"
            line = encode(record, what)
            try:
                too_large(what, len(line), "max_state", self.current._max_state)
            except Problem as e:
                raise EventRefused(e, "record") from None
            await self.current._emit("record", True, **record)
            self._last = record = decode(line)  # what a replay gets
        return record

    # The driver: decides what the branches get.

    @contextlib.contextmanager
    def _working(self) -> Any:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._change()

    def _change(self) -> None:
        self._changes += 1
        self._kick.set()

    def _adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = asyncio.current_task()
        task.add_done_callback(self._left)
        self._change()

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if self._over and not task.cancelled():
            task.exception()  # is no news
        self._change()

    def _idle(self) -> bool:
        """Each branch waits for a word, or for a branch."""
        waiting = {w.task for w in self._words.values()} | set(self._tasks.values())
        return not self._busy and all(t in waiting for t in (self._main, *self._tasks))

    async def _open(self) -> None:
        page = self.current.document.get("records") or {}
        while True:
            self._history += page.get("records") or []
            if not page.get("next"):
                break
            page = await self.current._api.call("GET", "/records", query={"after": str(page["next"])})
        for record in self._history:
            if record["kind"] not in ("message", "wait"):
                self._index[record["name"], record["nth"]] = record
            elif record["kind"] == "wait":
                self._slept |= {_key(k) for k in record["data"]["sleeps"]}
        if self._history:
            self._skip = self._history[-1].get("emitted") or {}
            self._kept = dict(self._skip)
            self._last = self._history[-1]
        if self._history and self._history[0]["kind"] == "message":
            self.message = Message.from_json(self._history[0]["data"])
        elif not self._history:
            await self._record("message", ("message", 1), data=self.current.document.get("message"))

    async def _drive(self) -> None:
        try:
            while not self._over:
                forced = False
                try:
                    await asyncio.wait_for(self._kick.wait(), PATIENCE if self._words else None)
                except asyncio.TimeoutError:
                    forced = True
                self._kick.clear()
                if self._words and await self._quiet():
                    while self._words and not self._over and await self._advance(forced):
                        await self._quiet()
        except Exception as e:
            self._fail(e)

    async def _quiet(self) -> bool:
        seen, rounds = self._changes, 0
        while rounds < QUIET:
            await asyncio.sleep(0)
            seen, rounds = (seen, rounds + 1) if seen == self._changes else (self._changes, 0)
        return True

    async def _advance(self, forced: bool) -> bool:
        """Give one branch what it awaits. False: none can go on."""
        words = list(self._words.values())
        if self._free():
            for word in words:
                if word.key in self._index:
                    word.future.set_result(self._take(word.key))
                elif word.kind in WAITS:
                    word.future.cancel()
                else:
                    word.future.set_result(None)
            return True
        record = self._at()
        if record is not None:
            return self._replay(record, words)
        if self._dry:
            self._stop()
            return True
        begun = [w for w in words if w.kind not in WAITS]
        for word in begun:
            word.future.set_result(None)
        if begun or await self._answer(words):
            return True
        if self._idle() or (forced and not self._busy):
            await self._suspend(words)
            return True
        return False

    def _replay(self, record: dict[str, JSON], words: Sequence[Word]) -> bool:
        key = (record["name"], record["nth"])
        if record["kind"] == "wait":
            data = record["data"]
            listed = [*(tuple(k) for k in data["asks"] + data["calls"]), *map(_key, data["sleeps"])]
            if all(k in self._words or k in self._gone for k in listed):
                for name, until in data["sleeps"].items():
                    if _key(name) in self._words:
                        self._words[_key(name)].deadline = parse_time(until)
                self._cursor += 1
                self._turn += 1
                return True
            key = next(k for k in listed if k not in self._words)
            record = {"kind": "wait for", "name": key[0], "nth": key[1]}
        elif key in self._words:
            self._words[key].future.set_result(self._take(key))
            return True
        if not self._idle():
            return False
        for word in words:
            if word.kind == "version" and word.key not in self._index:
                word.future.set_result({"data": False})
                return True
        self._fail(_changed(record, next((w for w in words if w.key not in self._index), words[0])))
        return True

    async def _answer(self, words: Sequence[Word]) -> bool:
        """Give a branch what the turn has brought."""
        last = next((r["data"] for r in reversed(self._history) if r["kind"] == "wait"), None) or {}
        fresh = last.get("turn", self.current.turn) < self.current.turn
        given = self.current.document.get("input") or {}
        for word in words:
            data: JSON = None
            if word.kind == "sleep":
                assert word.deadline is not None
                until = parse_time(last["until"]) if fresh and given.get("source") == "timer" else None
                passed = word.deadline <= (max(_now(), until) if until else _now())
                data = word.deadline.isoformat() if passed else None
            elif not fresh or list(word.key) not in last["calls" if word.kind == "call" else "asks"]:
                continue
            elif word.kind == "call":
                data = next((r for r in given.get("results") or [] if r.get("id") == _id(word.key)), None)
            elif word.key not in self._wrong:
                data = self._reply(word, [tuple(k) for k in last["asks"]], given)
            if data is None:
                continue
            kind = KEPT_AS.get(word.kind, word.kind)
            try:
                record = await self._record(kind, word.key, data=data)
            except EventRefused:
                if word.kind != "call":
                    raise
                left = len(encode(data.pop("artifacts", None), "the artifacts"))
                record = await self._record(kind, word.key, data={**data, "omitted": data.get("omitted", 0) + left})
            if not word.future.done():
                word.future.set_result(record)
            return True
        return False

    def _reply(self, word: Word, asked: Sequence[Key], given: dict[str, JSON]) -> JSON:
        """What the turn's message answers to one of its questions; None: nothing that it may."""
        message = self.current.message
        if given.get("source") == "resume":
            text = given.get("text")
            message = Message([Part(data=given["data"])] if "data" in given else [Part(text=text or "")], role="user")
        if not message:
            return None
        data = message.data
        if word.kind == "ask" and len(asked) > 1:
            if isinstance(data, dict):
                if _field(word.key) not in data:
                    return None
                data = data[_field(word.key)]
                if word.schema is None:
                    return Message([Part(text=data) if isinstance(data, str) else Part(data=data)], role="user").to_json()
                properties = list(word.schema.get("properties") or {})
                if len(properties) == 1:
                    data = {properties[0]: data}
            else:
                # A line for each question. Any other text answers the first; the others are asked again.
                lines = [line for line in message.text.splitlines() if line.strip()]
                if len(lines) == len(asked):
                    message = Message([Part(text=lines[asked.index(word.key)])], role="user")
                elif word.key != asked[0]:
                    return None
        if word.schema is None:
            return {**message.to_json(), "role": "user"}
        try:
            data = understood(word.schema, message.text) if data is None else data
            load(word.hint, data)
        except (TypeError, ValueError) as e:
            self._wrong[word.key] = f"The answer does not fit: {e}"
            return None
        return data

    async def _suspend(self, words: Sequence[Word]) -> None:
        """End the run: all branches wait."""
        self._over = True
        asks = [w for w in words if w.kind in ("ask", "auth")]
        calls = [w for w in words if w.call is not None]
        sleeps = {_id(w.key): w.deadline for w in words if w.deadline is not None}
        until = min(sleeps.values(), default=None)
        data = {
            "asks": [w.key for w in asks],
            "calls": [w.key for w in calls],
            "until": until,
            "sleeps": sleeps,
            "turn": self.current.turn,
        }
        waits = [r for r in self._history if r["kind"] == "wait"]
        if self._last.get("kind") != "wait" or self._last["data"]["turn"] != self.current.turn:  # else its event was lost
            await self._record("wait", ("wait", len(waits) + 1), data=dump(data))
        if calls:
            await self.current.call(*(Call(**{**vars(w.call), "id": _id(w.key)}) for w in calls))
        elif asks:
            resume = next((w.resume for w in asks if w.resume), None)
            say = self.current.ask if any(w.kind == "ask" for w in asks) else self.current.auth
            await say(Message(self._question(asks)), resume=resume)
        else:
            await self.current.wait(until=until)
        self._stop()

    def _question(self, asks: Sequence[Word]) -> list[Part]:
        parts: list[Part] = []
        fields: dict[str, JSON] = {}
        for word in asks:
            if word.key in self._wrong:
                parts.append(Part(text=self._wrong[word.key]))
            parts += word.message.parts
            properties = word.schema.get("properties") or {} if word.schema else {"": {"type": "string"}}
            whole = word.schema if len(properties) != 1 else next(iter(properties.values()))
            if word.kind == "ask":
                fields[_field(word.key)] = {**(whole or {}), "title": word.message.text}
        if len(asks) == 1:
            return parts + ([Part(data={"requestedSchema": asks[0].schema})] if asks[0].schema else [])
        if fields:
            form = {"type": "object", "properties": fields, "required": list(fields)}
            parts.append(Part(data={"requestedSchema": form}))
        return parts

    def _fail(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self._stop()

    def _left_over(self) -> None:
        """Warn of records that the function has not asked for; a test of the code raises."""
        record = self._at()
        if record is not None and not self._free():
            error = _changed(record, None)
            if self._dry:
                raise error
            self.log.warning("the function has ended before its records", extra={"error": str(error)})

    def _stop(self) -> None:
        """Raise Suspended in all branches."""
        self._over = True
        for word in self._words.values():
            if not word.future.done():
                word.future.set_exception(Suspended())


async def _attempt(step: Step, function: Callable[..., Any], args: tuple[Any, ...], timeout: float | None) -> Any:
    async def call() -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        given = await asyncio.to_thread(function, *args)
        return await given if inspect.isawaitable(given) else given

    token = _step.set(step)
    try:
        return await (call() if timeout is None else asyncio.wait_for(call(), timeout))
    finally:
        _step.reset(token)


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _changed(record: dict[str, JSON], word: Word | None) -> CodeChanged:
    found = f"the function has {word.kind} {word.key[0]!r} ({word.key[1]}) at {word.place}" if word else "the function has ended"
    return CodeChanged(
        f"the code has changed: the task has {record['kind']} {record['name']!r} ({record['nth']}) next, but {found}"
    )


def _place() -> str:
    """The line of the agent's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, _ASYNCIO)):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "?"


def _id(key: Key) -> str:
    return f"{key[0]}#{key[1]}"


def _key(id: str) -> Key:
    name, _, nth = id.rpartition("#")
    return name, int(nth)


def _field(key: Key) -> str:
    return key[0] if key[1] == 1 else f"{key[0]} {key[1]}"


def _now() -> datetime:
    return datetime.now(timezone.utc)
