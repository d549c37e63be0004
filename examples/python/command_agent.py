#!/usr/bin/env python3
"""An agent for Holdfast's command executor: one process per message.

It counts the words of the message, slowly when DELAY is set (seconds per word),
and keeps a checkpoint after each word: when it is killed in the middle, the next
try goes on there. Configure the agent with

    executor: {kind: command, command: {argv: ["python3", "examples/python/command_agent.py"]}}
"""

import json
import os
import sys
import time


def emit(type, **members):
    print(json.dumps({"type": type, **members}), flush=True)


def main():
    run = json.load(sys.stdin)
    text = " ".join(part["text"] for part in run["message"]["parts"] if "text" in part)
    words = text.split()
    if not words:
        emit("reject", message="There is nothing to count.")
        return

    state = run.get("checkpoint") or {"done": 0, "counts": {}}
    print(f"try {run['try']}, {state['done']} of {len(words)} words done", file=sys.stderr)
    for word in words[state["done"]:]:
        time.sleep(float(os.environ.get("DELAY", "0")))
        word = word.lower().strip(".,;:!?")
        state["counts"][word] = state["counts"].get(word, 0) + 1
        state["done"] += 1
        emit("checkpoint", data=state)

    emit("text", name="summary", text=f"{len(words)} words, {len(state['counts'])} different")
    emit("artifact", artifact={"artifactId": "counts", "name": "counts", "parts": [{"data": state["counts"]}]})


main()
