// A request as a command or a program that sends it to the server that clients call.
import { get } from "../api/client";
import type { Talks } from "../api/schema";
import type { Request } from "./wire";

export interface Target {
  /** base is the URL of the agent. */
  base: string;
  /** credential is how clients of the agent say who they are. */
  credential?: { kind: string; header?: string };
}

/** talks is the query for the agents, and for how clients call them. */
export const talks = {
  queryKey: ["talk"],
  queryFn: ({ signal }: { signal: AbortSignal }) => get("/talk", { signal }),
  staleTime: 30_000,
};

/** targetOf says where clients call an agent, and how they show who they are. */
export function targetOf(talks: Talks, agent: string): Target {
  const scheme = talks.agents.find((a) => a.name === agent)?.schemes[0];
  const credential = talks.schemes.find((s) => s.name === scheme);
  return { base: `${talks.url ?? ""}/agents/${encodeURIComponent(agent)}`, ...(credential ? { credential } : {}) };
}

export const languages = ["curl", "Python", "TypeScript"] as const;
export type Language = (typeof languages)[number];

/** copyAs writes a request in a language. Secrets come from the environment. */
export function copyAs(language: Language, r: Request, to: Target): string {
  const url = r.path ? `${to.base}/${r.path}` : to.base;
  const streams = r.op === "stream" || r.op === "subscribe";
  return { curl, Python: python, TypeScript: typescript }[language](r, url, secretOf(to), streams);
}

interface Secret {
  header: string;
  prefix: string;
  variable: string;
}

function secretOf(to: Target): Secret | undefined {
  switch (to.credential?.kind) {
    case "api_key": {
      const header = to.credential.header ?? "X-API-Key";
      return { header, prefix: header.toLowerCase() === "authorization" ? "Bearer " : "", variable: "HOLDFAST_API_KEY" };
    }
    case "jwt":
      return { header: "Authorization", prefix: "Bearer ", variable: "HOLDFAST_TOKEN" };
    case "basic":
      return { header: "Authorization", prefix: "Basic ", variable: "HOLDFAST_BASIC" };
  }
  return undefined;
}

function shell(s: string): string {
  return `'${s.replaceAll("'", "'\\''")}'`;
}

/** One argument of a program has 128 KiB at most on Linux. */
const longArgument = 100_000;

function curl(r: Request, url: string, secret: Secret | undefined, streams: boolean): string {
  const lines = [`curl -sS${streams ? "N" : ""} ${shell(url)}`];
  for (const [name, value] of Object.entries(r.headers)) lines.push(`-H ${shell(`${name}: ${value}`)}`);
  if (secret) lines.push(`-H "${secret.header}: ${secret.prefix}$${secret.variable}"`);
  if (r.body === undefined) return lines.join(" \\\n  ");
  if (r.body.length < longArgument) return [...lines, `-d ${shell(r.body)}`].join(" \\\n  ");
  return `${[...lines, "--data-binary @- << 'A2A'"].join(" \\\n  ")}\n${r.body}\nA2A`;
}

function python(r: Request, url: string, secret: Secret | undefined, streams: boolean): string {
  const out = ["# pip install httpx", ...(secret ? ["import os", ""] : []), "import httpx", ""];
  out.push("headers = {");
  for (const [name, value] of Object.entries(r.headers)) out.push(`    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  if (secret)
    out.push(
      `    ${JSON.stringify(secret.header)}: ${JSON.stringify(secret.prefix)} + os.environ[${JSON.stringify(secret.variable)}],`,
    );
  out.push("}");
  if (r.body !== undefined) {
    const raw = r.body.includes("'''") ? JSON.stringify(r.body) : `r'''${r.body}'''`;
    out.push(`body = ${raw}`);
  }
  const more = `headers=headers${r.body === undefined ? "" : ", content=body"}, timeout=None`;
  out.push("");
  if (streams) {
    out.push(
      `with httpx.stream(${JSON.stringify(r.method)}, ${JSON.stringify(url)}, ${more}) as answer:`,
      "    for line in answer.iter_lines():",
      "        print(line)",
    );
  } else {
    out.push(`answer = httpx.request(${JSON.stringify(r.method)}, ${JSON.stringify(url)}, ${more})`, "print(answer.text)");
  }
  return out.join("\n");
}

function typescript(r: Request, url: string, secret: Secret | undefined, streams: boolean): string {
  const out: string[] = ["// Node 20 or newer, as a module: npx tsx request.mts"];
  if (r.body !== undefined) {
    const raw = /`|\$\{/.test(r.body) ? JSON.stringify(r.body) : `String.raw\`${r.body}\``;
    out.push(`const body = ${raw};`);
  }
  out.push(`const answer = await fetch(${JSON.stringify(url)}, {`);
  if (r.method !== "GET") out.push(`  method: ${JSON.stringify(r.method)},`);
  out.push("  headers: {");
  for (const [name, value] of Object.entries(r.headers)) out.push(`    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  if (secret) out.push(`    ${JSON.stringify(secret.header)}: \`${secret.prefix}\${process.env.${secret.variable}}\`,`);
  out.push("  },");
  if (r.body !== undefined) out.push("  body,");
  out.push("});");
  if (streams) {
    out.push(
      "const decoder = new TextDecoder();",
      "for await (const piece of answer.body!) process.stdout.write(decoder.decode(piece, { stream: true }));",
    );
  } else out.push("console.log(await answer.text());");
  return out.join("\n");
}
