"""Questions that several adapters ask."""

from __future__ import annotations

from typing import Any

DELETE: dict[str, Any] = {
    "approvals": [{"id": "c-1", "tool": "delete", "arguments": {"name": "f"}}],
    "requestedSchema": {
        "type": "object",
        "properties": {"approved": {"type": "boolean", "title": 'delete(name="f")'}},
        "required": ["approved"],
    },
}
"""The approval of the call c-1: delete(name="f")."""
