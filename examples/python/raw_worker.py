"""A worker without a package: python3 raw_worker.py. It speaks the protocol of docs/agents/worker.md, and counts to a number."""

import json, os, threading, time, urllib.request, uuid

SERVER = os.environ.get("HOLDFAST_URL", "http://127.0.0.1:8080")
ME = {"id": str(uuid.uuid4()), "name": os.uname().nodename, "version": "1"}
running, stopping = {}, set()  # ids of runs


def post(url, body, token=None, media="application/json"):
    headers = {"Content-Type": media}
    if token := token or os.environ.get("HOLDFAST_KEY"):
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(url, body.encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=90))


def call(path, **body):
    return post(f"{SERVER}/worker/v1{path}", json.dumps({"worker": ME, **body}))


def beat():
    while True:
        try:
            answer = call("/heartbeat", runs=list(running), stopping=list(stopping), wait=2)
            stopping.update(run["id"] for run in answer["runs"])
        except Exception as problem:  # the next heartbeat may reach another replica
            print(problem)
        time.sleep(0.2)


def events(said):
    if not said.isdecimal():
        yield {"type": "status", "state": "failed", "message": "Send a number."}
        return
    for n in range(int(said)):
        yield {"type": "text", "name": "numbers", "text": f"{n} "}
        time.sleep(0.05)
    yield {"type": "complete"}


def work(id, run):
    """Do a run: post its events, each with the number of those before it."""
    try:
        for n, event in enumerate(events(run["message"]["parts"][0].get("text", ""))):
            while id not in stopping:
                try:
                    post(f"{SERVER}/run/v1/events?from={n}", json.dumps(event) + "\n", run["runApi"]["token"], "application/x-ndjson")
                    break
                except OSError as problem:
                    if getattr(problem, "code", 503) in (401, 409, 410, 413, 422):
                        stopping.add(id)  # the run is over, or the server refuses the event
                    time.sleep(0.2)  # then the same event again: nothing doubles
    finally:
        running.pop(id, None)
        stopping.discard(id)


threading.Thread(target=beat, daemon=True).start()
while True:
    try:
        answer = call("/claims", agents=[{"name": "counter", "slots": 4 - len(running)}], running=list(running), wait=20)
    except Exception as problem:
        print(problem)
        time.sleep(0.5)
        continue
    for claimed in answer["runs"]:
        running[claimed["id"]] = True
        threading.Thread(target=work, args=(claimed["id"], claimed["run"])).start()
    if answer.get("drain") == "worker":
        break  # the process ends with its last run
