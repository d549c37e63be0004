"""Callers that chose the same ids: nobody's words reach another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import holdfast_agent as hf
from holdfast_agent import testing


async def check(make: Callable[[str], hf.Agent], *, shared: bool) -> None:
    """Let two tenants with two owners each talk to two agents, in two tasks of one context, each with two messages.

    make: an agent of this name, which answers with all that it remembers. All agents have the same stores.
    shared: the tasks of a context share the memory of one caller.
    """
    agents = [make("one"), make("two")]
    everybody = list(itertools.product(("", "acme", "globex"), ("", "ada", "bob"), agents))
    first = {c: testing.Task(c[2], id="trip-1", context_id="shared", tenant=c[0], owner=c[1]) for c in everybody}
    second = {c: first[c].another("trip-2") for c in everybody}
    said: dict[int, set[str]] = {}
    words = (f"secret{n}x" for n in itertools.count(1))
    for place, tasks in enumerate((first, second)):
        for n, caller in enumerate(everybody):
            memory = n if shared else n + place * len(everybody)
            word = next(words)
            said.setdefault(memory, set()).add(word)
            turn = await tasks[caller].send(f"my secret is {word}")
            assert turn.state == "completed", turn.message
            told = " ".join([turn.text, *(str(p.data) for a in turn.artifacts for p in a.parts if p.has_data)])
            found = set(re.findall(r"secret\d+x", told))
            assert found == said[memory], f"{caller[:2]}: {told}"
