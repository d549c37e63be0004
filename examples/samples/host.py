"""A host: it finds agents in the server's catalog, delegates to them, and passes on their questions and their results.

    python host.py

It compares the words of the message with the tags of the agents' skills. SAMPLES_MODEL, such as gemini-2.5-flash, with
GOOGLE_API_KEY lets a model choose.
"""

import os
import re

import httpx

from holdfast_agent import Agent, Call, Message, text

agent = Agent("host")


@agent.run
async def delegate(run):
    waiting = run.state().data or []  # called tasks that have asked something
    if run.message and waiting:  # the client has answered the first of them
        first = waiting[0]
        await run.call(Call(Message(run.message.parts), task=first["task"], id=first["agent"], relay=True))
        return
    if run.message:
        agents = await catalog()
        chosen = await choose(run.message.text, agents)
        if not chosen:
            await run.complete("I can delegate to " + ", ".join(f"{a['name']} ({a['card']['description']})" for a in agents))
            return
        await run.call(*[Call(Message(run.message.parts), agent=name, id=name, relay=True) for name in chosen])
        return
    waiting = [w for w in waiting if w["task"] not in {r.task for r in run.results}]
    for result in run.results:
        if result.state in ("input-required", "auth-required"):
            parts = result.message.to_json()["parts"] if result.message else [{"text": "?"}]
            waiting.append({"agent": result.agent, "task": result.task, "question": parts})
        else:
            await show(run, result)
    await run.set_state(waiting)
    if waiting:
        question = Message.from_json({"parts": waiting[0]["question"]})
        await run.ask(Message([text(f"{waiting[0]['agent']} asks:"), *question.parts]))


async def show(run, result):
    """Pass a result on. The ids are those of the turn, so that another try replaces what this one has written."""
    for artifact in result.artifacts:
        id = f"{run.turn}-{result.agent}-{artifact.id}"
        await run.artifact(*artifact.parts, name=artifact.name or result.agent, id=id)
    said = result.error or (result.message.text if result.message else "")
    if result.state != "completed":
        await run.text(f"{result.agent}: {result.state}. {said}", name=f"{result.agent}-end", last=True)
    elif not result.artifacts:
        await run.text(said, name=f"{result.agent}-end", last=True)


async def catalog():
    """The other agents of the server, with their cards."""
    url = os.environ.get("HOLDFAST_URL", "http://127.0.0.1:8080").split(",")[0]
    agents, page = [], {"pageSize": "100"}
    async with httpx.AsyncClient(base_url=url) as client:
        while True:
            answer = (await client.get("/agents", params=page)).raise_for_status().json()
            agents += [a for a in answer["agents"] if a["name"] != agent.name]
            if not answer["nextPageToken"]:
                return agents
            page["pageToken"] = answer["nextPageToken"]


async def choose(message, agents):
    """The names of the agents that the message is for."""
    if model := os.environ.get("SAMPLES_MODEL"):
        from google import genai

        about = "\n".join(f"{a['name']}: {a['card']['description']}" for a in agents)
        prompt = f"Agents:\n{about}\n\nTo which agents is this message? Answer with their names only.\n\n{message}"
        message = (await genai.Client().aio.models.generate_content(model=model, contents=prompt)).text or ""
        tags = {a["name"]: {a["name"].lower()} for a in agents}
    else:
        tags = {a["name"]: {t.lower() for s in a["card"]["skills"] for t in s["tags"]} for a in agents}
    words = set(re.findall(r"\w+", message.lower()))
    return [name for name in tags if tags[name] & words]


if __name__ == "__main__":
    agent.serve()
