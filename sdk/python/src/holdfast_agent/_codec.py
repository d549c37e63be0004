"""Values of durable runs as JSON, and back: dataclasses, models of pydantic, enums and times."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Union

from .content import JSON
from .content import time as parse_time

YES = frozenset(["yes", "y", "ok", "okay", "true", "approve", "approved", "confirm", "confirmed"])
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def dump(value: Any) -> JSON:
    """Make JSON of a value. What it does not know stays, for the json module to refuse."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: dump(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return dump(value.value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {k: dump(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [dump(v) for v in value]
    return value


def load(hint: Any, value: JSON) -> Any:
    """Rebuild a value from JSON as its annotation says. TypeError or ValueError is raised if it does not fit."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return load(args[0], value)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        kinds = [a for a in args if a is not type(None)]
        return load(kinds[0], value) if len(kinds) == 1 else value
    if origin is typing.Literal:
        if value not in args:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, args))}")
        return value
    if origin in (list, set, tuple) and isinstance(value, list):
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            return tuple(load(a, v) for a, v in zip(args, value, strict=True))
        return origin(load(args[0] if args else Any, v) for v in value)
    if origin is dict and isinstance(value, dict) and len(args) == 2:
        return {k: load(args[1], v) for k, v in value.items()}
    if not isinstance(hint, type):
        return value
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise TypeError(f"{hint.__name__} needs an object, not {value!r}")
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: load(hints[f.name], value[f.name]) for f in dataclasses.fields(hint) if f.name in value})
    if issubclass(hint, enum.Enum):
        return hint(value)
    if hint is datetime:
        return parse_time(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint in _SCALARS and type(value) is not hint:
        raise TypeError(f"{value!r} is not {_SCALARS[hint]}")
    return value


def returned(function: Any) -> Any:
    """The annotation of what a function returns, or Any."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = getattr(function, "__call__", function)  # noqa: B004
    try:
        return typing.get_type_hints(function).get("return", Any)
    except (NameError, TypeError):  # an annotation for type checkers only
        return Any


def schema_of(kind: Any) -> dict[str, JSON]:
    """The JSON Schema of a form: of a dataclass or a model of pydantic, or the schema itself."""
    if isinstance(kind, dict):
        return kind
    if hasattr(kind, "model_json_schema"):
        made: dict[str, JSON] = kind.model_json_schema()
        return made
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"schema is a dataclass, a model of pydantic or a JSON Schema, not {kind!r}")
    hints = typing.get_type_hints(kind)
    needed = [
        f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    return {"type": "object", "properties": {f.name: _member(hints[f.name]) for f in dataclasses.fields(kind)}, "required": needed}


def _member(hint: Any) -> dict[str, JSON]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [a for a in args if a is not type(None)]
        return _member(kinds[0]) if len(kinds) == 1 else {}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is list:
        return {"type": "array", "items": _member(args[0])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [m.value for m in hint]}
    if dataclasses.is_dataclass(hint):
        return schema_of(hint)
    return {"type": _SCALARS[hint]} if hint in _SCALARS else {}


def understood(schema: Mapping[str, JSON], text: str) -> JSON:
    """What a text answers to a form: of one property its value, of several none."""
    properties = schema.get("properties") or {}
    if len(properties) != 1:
        raise ValueError("please fill in the form")
    ((name, of),) = properties.items()
    kind = of.get("type")
    if kind == "boolean":
        return {name: text.strip().lower() in YES}
    if kind in ("integer", "number"):
        return {name: int(text) if kind == "integer" else float(text)}
    return {name: text}
