"""What clients and agents say: parts, messages, artifacts, and the rest of the run document."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Union

JSON = Any
"""Any value that the json module writes."""

Scope = Literal["task", "context"]


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()
"""Stands for content that is absent, because None is a JSON value."""


@dataclass
class Part:
    """One piece of content: exactly one of text, raw, url and data."""

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: JSON = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, JSON] | None = None

    @property
    def has_data(self) -> bool:
        return self.data is not UNSET

    def to_json(self) -> dict[str, JSON]:
        given = [self.text is not None, self.raw is not None, self.url is not None, self.has_data]
        if sum(given) != 1:
            raise ValueError("a part has exactly one of text, raw, url and data")
        doc: dict[str, JSON] = {}
        if self.text is not None:
            doc["text"] = _string(self.text, "part.text")
        elif self.raw is not None:
            doc["raw"] = base64.b64encode(self.raw).decode("ascii")
        elif self.url is not None:
            doc["url"] = _string(self.url, "part.url")
        else:
            doc["data"] = self.data
        if self.filename is not None:
            doc["filename"] = _string(self.filename, "part.filename")
        if self.media_type is not None:
            doc["mediaType"] = _string(self.media_type, "part.media_type")
        if self.metadata is not None:
            doc["metadata"] = _object(self.metadata, "part.metadata")
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> Part:
        raw = doc.get("raw")
        return cls(
            text=doc.get("text"),
            raw=None if raw is None else base64.b64decode(raw),
            url=doc.get("url"),
            data=doc.get("data", UNSET),
            filename=doc.get("filename"),
            media_type=doc.get("mediaType"),
            metadata=doc.get("metadata"),
        )


def text(content: str, *, media_type: str | None = None, metadata: dict[str, JSON] | None = None) -> Part:
    """Make a part with text."""
    return Part(text=content, media_type=media_type, metadata=metadata)


def file(content: bytes, *, filename: str | None = None, media_type: str | None = None) -> Part:
    """Make a part with the bytes of a file."""
    return Part(raw=content, filename=filename, media_type=media_type)


def url(address: str, *, filename: str | None = None, media_type: str | None = None) -> Part:
    """Make a part with a file that the client fetches itself."""
    return Part(url=address, filename=filename, media_type=media_type)


def data(value: JSON, *, media_type: str | None = None) -> Part:
    """Make a part with a JSON value."""
    return Part(data=value, media_type=media_type)


@dataclass
class Message:
    """One turn of the conversation."""

    parts: list[Part] = field(default_factory=list)
    id: str | None = None
    role: Literal["user", "agent"] = "agent"
    metadata: dict[str, JSON] | None = None
    extensions: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return _text(self.parts)

    @property
    def data(self) -> JSON:
        """The value of the first data part, or None."""
        return next((p.data for p in self.parts if p.has_data), None)

    def to_json(self) -> dict[str, JSON]:
        if not self.parts:
            raise ValueError("message.parts: a message needs at least one part")
        doc: dict[str, JSON] = {"parts": [p.to_json() for p in self.parts]}
        if self.id is not None:
            doc["messageId"] = _string(self.id, "message.id")
        if self.metadata is not None:
            doc["metadata"] = _object(self.metadata, "message.metadata")
        if self.extensions:
            doc["extensions"] = list(self.extensions)
        if self.references:
            doc["referenceTaskIds"] = list(self.references)
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> Message:
        return cls(**_message(doc))


def _message(doc: Mapping[str, JSON]) -> dict[str, Any]:
    return {
        "parts": [Part.from_json(p) for p in doc.get("parts") or []],
        "id": doc.get("messageId"),
        "role": doc.get("role", "user"),
        "metadata": doc.get("metadata"),
        "extensions": list(doc.get("extensions") or []),
        "references": list(doc.get("referenceTaskIds") or []),
    }


@dataclass
class Said(Message):
    """An entry of the history: a message, or an artifact of the agent in the form of a message."""

    artifact_id: str | None = None
    name: str | None = None
    description: str | None = None
    task_id: str | None = None
    state: str | None = None
    omitted: int = 0

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> Said:
        return cls(
            **_message(doc),
            artifact_id=doc.get("artifactId"),
            name=doc.get("name"),
            description=doc.get("description"),
            task_id=doc.get("taskId"),
            state=doc.get("state"),
            omitted=doc.get("omitted") or 0,
        )


@dataclass
class Artifact:
    """An output of a task."""

    parts: list[Part]
    id: str | None = None
    name: str | None = None
    description: str | None = None
    metadata: dict[str, JSON] | None = None
    extensions: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text parts, joined without anything between: pieces of one text follow each other."""
        return "".join(p.text for p in self.parts if p.text is not None)

    def to_json(self) -> dict[str, JSON]:
        if not self.parts:
            raise ValueError("artifact.parts: an artifact needs at least one part")
        doc: dict[str, JSON] = {"parts": [p.to_json() for p in self.parts]}
        for key, value in (("artifactId", self.id), ("name", self.name), ("description", self.description)):
            if value is not None:
                doc[key] = _string(value, "artifact." + key)
        if self.metadata is not None:
            doc["metadata"] = _object(self.metadata, "artifact.metadata")
        if self.extensions:
            doc["extensions"] = list(self.extensions)
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> Artifact:
        return cls(
            parts=[Part.from_json(p) for p in doc.get("parts") or []],
            id=doc.get("artifactId"),
            name=doc.get("name"),
            description=doc.get("description"),
            metadata=doc.get("metadata"),
            extensions=list(doc.get("extensions") or []),
        )


@dataclass
class ArtifactInfo:
    """An artifact without its content."""

    id: str
    name: str | None = None
    chunks: int = 0
    bytes: int = 0
    last: bool = False

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> ArtifactInfo:
        return cls(
            id=doc["artifactId"],
            name=doc.get("name"),
            chunks=doc.get("chunks") or 0,
            bytes=doc.get("bytes") or 0,
            last=bool(doc.get("last")),
        )


@dataclass
class State:
    """A value that a run has stored. The version rises with each write; 0: nothing is stored."""

    data: JSON = None
    version: int = 0


@dataclass
class Call:
    """A message for another agent of the server, or for the task of an earlier call."""

    message: MessageLike
    agent: str | None = None
    task: str | None = None
    id: str | None = None
    context_id: str | None = None
    metadata: dict[str, JSON] | None = None
    relay: bool = False

    def to_json(self) -> dict[str, JSON]:
        if (self.agent is None) == (self.task is None):
            raise ValueError("a call has either agent or task")
        doc: dict[str, JSON] = {"message": to_message(self.message).to_json()}
        for key, value in (("id", self.id), ("agent", self.agent), ("task", self.task), ("contextId", self.context_id)):
            if value is not None:
                doc[key] = _string(value, "call." + key)
        if self.metadata is not None:
            doc["metadata"] = _object(self.metadata, "call.metadata")
        if self.relay:
            doc["relay"] = True
        return doc


@dataclass
class Result:
    """What came of a call. `task` is empty and `error` says why if the call was refused."""

    id: str
    state: str
    agent: str = ""
    task: str = ""
    message: Message | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    omitted: int = 0
    error: str = ""

    @property
    def text(self) -> str:
        """The text of the artifacts, or of the message."""
        found = "".join(a.text for a in self.artifacts)
        return found or (self.message.text if self.message else "")

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> Result:
        message = doc.get("message")
        return cls(
            id=doc.get("id") or "",
            state=doc.get("state") or "",
            agent=doc.get("agent") or "",
            task=doc.get("task") or "",
            message=Message.from_json(message) if message else None,
            artifacts=[Artifact.from_json(a) for a in doc.get("artifacts") or []],
            omitted=doc.get("omitted") or 0,
            error=doc.get("error") or "",
        )


@dataclass
class Input:
    """What began the turn, if not only a message. `source` is timer, calls or resume."""

    source: str
    until: datetime | None = None
    interrupted: bool = False
    results: list[Result] = field(default_factory=list)
    method: str = ""
    query: str = ""
    content_type: str = ""
    data: JSON = UNSET
    text: str | None = None
    raw: bytes | None = None

    @property
    def has_data(self) -> bool:
        return self.data is not UNSET

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> Input:
        raw = doc.get("bytes")
        return cls(
            source=doc.get("source") or "",
            until=time(doc.get("until")),
            interrupted=bool(doc.get("interrupted")),
            results=[Result.from_json(r) for r in doc.get("results") or []],
            method=doc.get("method") or "",
            query=doc.get("query") or "",
            content_type=doc.get("contentType") or "",
            data=doc.get("data", UNSET),
            text=doc.get("text"),
            raw=None if raw is None else base64.b64decode(raw),
        )


@dataclass
class Resume:
    """Makes the resume URL valid for `seconds` (a day by default). `show` adds it to the message."""

    seconds: float | None = None
    show: bool = False

    def to_json(self) -> dict[str, JSON]:
        doc: dict[str, JSON] = {}
        if self.seconds is not None:
            doc["for"] = self.seconds
        if self.show:
            doc["show"] = True
        return doc


@dataclass
class TaskInfo:
    """Another task of the context. `history` is filled by Run.task."""

    id: str
    context_id: str
    state: str
    created_at: datetime | None = None
    updated_at: datetime | None = None
    history: list[Said] = field(default_factory=list)

    @classmethod
    def from_json(cls, doc: Mapping[str, JSON]) -> TaskInfo:
        return cls(
            id=doc["id"],
            context_id=doc.get("contextId") or "",
            state=doc.get("state") or "",
            created_at=time(doc.get("createdAt")),
            updated_at=time(doc.get("updatedAt")),
            history=[Said.from_json(s) for s in doc.get("history") or []],
        )


PartLike = Union[Part, str]
MessageLike = Union[Message, Part, str, Sequence[PartLike]]


def to_part(value: PartLike) -> Part:
    if isinstance(value, Part):
        return value
    if isinstance(value, str):
        return Part(text=value)
    raise TypeError(f"a part is a str or a Part, not {type(value).__name__}; data(value) makes one of a JSON value")


def to_message(value: MessageLike) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, (str, Part)):
        return Message(parts=[to_part(value)])
    if isinstance(value, Sequence):
        return Message(parts=[to_part(p) for p in value])
    raise TypeError(f"a message is a str, a Part, a list of them or a Message, not {type(value).__name__}")


def time(value: str | None) -> datetime | None:
    """Parse a time of RFC 3339, with any number of digits behind the second."""
    if not value:
        return None
    value = value[:-1] + "+00:00" if value[-1] in "zZ" else value
    head, dot, tail = value.partition(".")
    if dot:
        digits = len(tail) - len(tail.lstrip("0123456789"))
        value = f"{head}.{tail[:digits][:6].ljust(6, '0')}{tail[digits:]}"
    return datetime.fromisoformat(value)


def encode(value: JSON, what: str) -> bytes:
    """Write JSON. Half of a surrogate pair stays an escape, as the server wants it."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(f"{what} is not JSON: {e}") from None
    try:
        return written.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def decode(body: bytes) -> JSON:
    return json.loads(body, parse_int=_integer)


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return float(digits)


def _text(parts: Sequence[Part]) -> str:
    return "\n".join(p.text for p in parts if p.text is not None)


def _string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}")
    return value


def _object(value: object, what: str) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} is a dict, not {type(value).__name__}")
    return value
