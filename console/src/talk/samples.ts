// The smallest agents, as the documents have them, and what starts each beside a server. A test compares them.
import goAgent from "../../../examples/go/main.go?raw";
import httpAgent from "../../../internal/cli/init/http/agent.py?raw";

export interface Sample {
  name: string;
  file: string;
  code: string;
  /** dev runs it beside a server of its own. */
  dev: string;
  /** here connects it to a server that has the agent already. */
  here?: string;
  /** page is the document, or the program, that has the code. */
  page: string;
}

export const samples: readonly Sample[] = [
  {
    name: "Python",
    file: "hello.py",
    page: "README.md",
    code: `from holdfast_agent import Agent

agent = Agent("hello")


@agent.run
async def hello(run):
    await run.text(f"Hello, {run.message.text}!")


agent.serve()`,
    dev: "holdfast dev --agent hello -- python3 hello.py",
    here: "python3 hello.py",
  },
  {
    name: "TypeScript",
    file: "hello.mjs",
    page: "docs/agents/typescript.md",
    code: `import { agent, serve } from "holdfast-agent";

serve(agent("hello", (run) => \`Hello, \${run.message.text}!\`));`,
    dev: "holdfast dev --agent hello -- node hello.mjs",
    here: "node hello.mjs",
  },
  {
    name: "HTTP",
    file: "agent.py",
    page: "internal/cli/init/http/agent.py",
    code: httpAgent.trimEnd(),
    dev: "holdfast dev --agent hello --http 9000 -- python3 agent.py",
  },
  {
    name: "Go",
    file: "main.go",
    page: "docs/agents/go.md",
    code: goAgent.slice(goAgent.indexOf("package main")).trimEnd(),
    dev: "go run .   # the program is a server with the agent in it, as holdfast dev is",
  },
];

/** demoScripts are messages that the demo agent knows, and what each does. */
export const demoScripts = [
  ["echo:hello", "answers with an artifact"],
  ["chunks=60 size=80 delay=100ms", "streams: cut it in the middle"],
  ["ask:Which city?", "asks, and waits"],
  ["steps=5 delay=500ms", "tells its progress"],
  ["data", "answers with data"],
  ["file", "answers with a file"],
  ["fail:no seat", "fails"],
  ["wait=30s", "waits without a process"],
] as const;

/** survivor is a stream that is long enough to end the server in its middle. */
export const survivor = "chunks=60 size=80 delay=500ms";
