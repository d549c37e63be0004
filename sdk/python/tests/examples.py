"""Loads the examples of the repository."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def load(path: str) -> Any:
    """The agent of examples/python/PATH."""
    return runpy.run_path(str(ROOT / "examples/python" / path))["agent"]
