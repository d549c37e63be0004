"""Calls two other agents, and answers with what they have said."""
import json
import sys

run = json.load(sys.stdin)
results = run.get("input", {}).get("results")
if results is None:
    message = {"parts": run["message"]["parts"]}
    calls = [{"id": name, "agent": name, "message": message} for name in ("flights", "hotels")]
    print(json.dumps({"type": "call", "calls": calls}))
else:
    for r in results:
        text = "".join(p.get("text", "") for a in r.get("artifacts", []) for p in a["parts"])
        if r["state"] != "completed":
            text = f"{r['state']}: {r.get('error', 'no answer')}"
        print(json.dumps({"type": "text", "name": r["id"], "text": text, "last": True}))
