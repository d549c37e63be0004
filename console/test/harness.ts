// A real server on a real PostgreSQL, tasks made through A2A, and a real browser, for tests of pages.
//
//   const h = await start();
//   afterAll(() => h.close());
//   const id = await h.send("echo:hello");
//   const page = await h.open("/tasks");
//   await axe(page);
//
// make console-test builds what it needs: bin/holdfast with the console, and bin/withdb.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { expect } from "vitest";

const bin = new URL("../../bin/", import.meta.url).pathname;

export interface Options {
  /** config is YAML that is added to the configuration, instead of the demo agent. */
  config?: string;
  /** admin is the admin address, if the configuration names it; then there is one replica. */
  admin?: string;
  /** replicas is how many servers share the database. */
  replicas?: number;
  /** roles are those of each replica, such as "api"; without them a replica has all. */
  roles?: string[];
}

export interface Replica {
  /** url is the address of the A2A API, admin that of operators. */
  url: string;
  admin: string;
  kill: () => Promise<void>;
  /** restart starts it again after a kill, at the same admin address if the options name it. upgraded gives the console other files. */
  restart: (upgraded?: boolean) => Promise<void>;
  log: () => string;
}

export interface View {
  theme?: "light" | "dark";
  /** phone opens the page on a small screen with touch. */
  phone?: boolean;
  /** tablet opens the page in a window that is 1024 pixels wide. */
  tablet?: boolean;
  replica?: number;
  /** keep leaves the pages that were opened before it open. Otherwise the four newest stay. */
  keep?: boolean;
}

export interface Harness {
  replicas: Replica[];
  /** send sends a text as a client, waits for the answer, and returns the task. */
  send: (text: string, options?: SendOptions) => Promise<Sent>;
  /** api calls the admin API without the console. */
  api: (path: string, body?: unknown) => Promise<Record<string, unknown>>;
  /** open opens a page of the console, such as "/tasks". */
  open: (path: string, view?: View) => Promise<Page>;
  /** operate runs a verb of the command line on the database, and returns what it prints. */
  operate: (...args: string[]) => Promise<string>;
  /** close ends everything, and fails if a page had an error or did what its policy forbids. */
  close: () => Promise<void>;
}

export interface SendOptions {
  agent?: string;
  context?: string;
  task?: string;
  messageId?: string;
  metadata?: Record<string, unknown>;
  /** webhook is the address of a receiver. */
  webhook?: string;
  /** replica is the server that the client reaches. */
  replica?: number;
  /** now does not wait until the task ends or asks. */
  now?: boolean;
}

export interface Sent {
  id: string;
  contextId: string;
  state: string;
}

const demo = "agents:\n  - name: demo\n    default: true\n    executor: {kind: demo}\n";

/** start starts servers on a database of their own. */
export async function start(options: Options = {}): Promise<Harness> {
  for (const needed of ["holdfast", "withdb"]) {
    if (!existsSync(bin + needed)) throw new Error(`bin/${needed} is missing: run make console-test`);
  }
  const folder = mkdtempSync(join(tmpdir(), "console-test-"));
  // The database lives until its standard input ends.
  const database = spawn(`${bin}withdb`, ["sh", "-c", 'echo "$DATABASE_URL"; cat'], { stdio: ["pipe", "pipe", "inherit"] });
  const databaseUrl = await firstLine(database, "withdb");
  writeFileSync(
    join(folder, "holdfast.yaml"),
    `listen: 127.0.0.1:0\nadmin_listen: ${options.admin ?? "127.0.0.1:0"}\ngrpc_listen: "off"\n${options.config ?? demo}`,
  );
  const replicas: Replica[] = [];
  for (let i = 0; i < (options.replicas ?? 1); i++) {
    const run = (program?: string) => serve(folder, databaseUrl, options.roles?.[i], program);
    const one: Replica = {
      ...(await run()),
      restart: async (upgraded) => void Object.assign(one, await run(upgraded ? upgrade(folder) : undefined)),
    };
    replicas.push(one);
  }

  let browser: Browser | undefined;
  const contexts: BrowserContext[] = [];
  const faults: string[] = [];
  const address = (replica = 0) => {
    const one = replicas[replica];
    if (!one) throw new Error(`there is no replica ${replica}`);
    return one;
  };
  let messages = 0;

  return {
    replicas,
    send: async (text, o = {}) => {
      const response = await fetch(address(o.replica).url + (o.agent ? `/agents/${o.agent}` : "/"), {
        method: "POST",
        headers: { "Content-Type": "application/json", "A2A-Version": "1.0" },
        body: JSON.stringify({
          jsonrpc: "2.0",
          id: 1,
          method: "SendMessage",
          params: {
            message: {
              messageId: o.messageId ?? `m-${Date.now()}-${messages++}`,
              role: "ROLE_USER",
              parts: [{ text }],
              contextId: o.context,
              taskId: o.task,
              metadata: o.metadata,
            },
            configuration: {
              returnImmediately: o.now,
              taskPushNotificationConfig: o.webhook ? { id: "hook", url: o.webhook } : undefined,
            },
          },
        }),
      });
      const answer = (await response.json()) as {
        error?: unknown;
        result?: { task?: { id: string; contextId: string; status: { state: string } } };
      };
      const task = answer.result?.task;
      if (!task) throw new Error(`no task: ${JSON.stringify(answer)}`);
      return { id: task.id, contextId: task.contextId, state: task.status.state };
    },
    api: async (path, body) => {
      const response = await fetch(`${address().admin}/admin/v1${path}`, {
        ...(body === undefined
          ? {}
          : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }),
      });
      const answer = (await response.json()) as Record<string, unknown>;
      if (!response.ok) throw new Error(`${path}: ${JSON.stringify(answer)}`);
      return answer;
    },
    operate: (...args) =>
      new Promise((resolve, reject) => {
        const env = { ...process.env, HOLDFAST_DATABASE_URL: databaseUrl };
        execFile(`${bin}holdfast`, args, { cwd: folder, env }, (error, out) => (error ? reject(error) : resolve(out.trim())));
      }),
    open: async (path, view = {}) => {
      browser ??= await chromium.launch({
        executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
        args: ["--no-sandbox", "--disable-dev-shm-usage"],
      });
      const context = await browser.newContext({
        colorScheme: view.theme ?? "light",
        viewport: view.phone
          ? { width: 390, height: 844 }
          : { width: view.tablet ? 1024 : 1280, height: view.tablet ? 768 : 800 },
        hasTouch: view.phone ?? false,
        isMobile: view.phone ?? false,
        deviceScaleFactor: 1,
        timezoneId: "Europe/Oslo",
        locale: "en-GB",
        reducedMotion: "reduce",
      });
      contexts.push(context);
      // Chromium has six connections per host, and a live page holds one. So the pages of earlier tests are closed.
      while (contexts.length > 4 && !view.keep) await contexts.shift()?.close();
      const page = await context.newPage();
      page.setDefaultTimeout(45_000); // a busy machine is slow, and a test that passes does not wait
      page.on("pageerror", (error) => faults.push(`${path}: ${error.stack ?? error.message}`));
      page.on("dialog", (dialog) => {
        faults.push(`${path}: a dialog of the browser: ${dialog.message()}`);
        void dialog.dismiss();
      });
      page.on("console", (message) => {
        // The browser reports answers such as 404 and cut streams, too. Those are no faults of the page.
        if (message.type() === "error" && !/^(Failed to load resource|Refused to apply style)/.test(message.text())) {
          faults.push(`${path}: ${message.text()}`);
        }
      });
      await page.goto(`${address(view.replica).admin}/console${path}`);
      return page;
    },
    close: async () => {
      for (const context of contexts) await context.close();
      await browser?.close();
      for (const one of replicas) await one.kill();
      database.stdin?.end();
      await ended(database);
      rmSync(folder, { recursive: true });
      if (faults.length > 0) throw new Error(`pages had faults:\n${faults.join("\n")}`);
    },
  };
}

/** freePort returns a port that nothing listens on. */
export async function freePort(): Promise<number> {
  const listener = createServer();
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port } = listener.address() as AddressInfo;
  await new Promise((resolve) => listener.close(resolve));
  return port;
}

export interface Front {
  /** url is what operators reach. */
  url: string;
  /** point sends new connections to another replica. */
  point: (replica: number) => void;
  close: () => void;
}

/** front passes connections to one replica, as a load balancer does. */
export async function front(h: Harness): Promise<Front> {
  let target = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const to = new URL(h.replicas[target]?.admin ?? "");
    const behind = connect(Number(to.port), to.hostname);
    for (const [from, other] of [
      [client, behind],
      [behind, client],
    ] as const) {
      sockets.add(from);
      from.pipe(other);
      from.on("error", () => other.destroy());
      from.on("close", () => {
        sockets.delete(from);
        other.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    point: (replica) => {
      target = replica;
    },
    close: () => {
      server.close();
      for (const s of sockets) s.destroy();
    },
  };
}

/** upgrade makes a program in which every file of the console has another name, as one of a later release has. */
function upgrade(folder: string): string {
  const program = readFileSync(`${bin}holdfast`);
  for (const name of readdirSync(new URL("../../internal/admin/console/dist/assets", import.meta.url))) {
    const old = name.slice(0, name.lastIndexOf("."));
    const next = old.slice(0, -1) + (old.endsWith("A") ? "B" : "A");
    for (let at = program.indexOf(old); at >= 0; at = program.indexOf(old, at + 1)) program.write(next, at, "latin1");
  }
  const path = join(folder, "upgraded");
  writeFileSync(path, program, { mode: 0o755 });
  return path;
}

async function serve(
  folder: string,
  databaseUrl: string,
  roles?: string,
  program = `${bin}holdfast`,
): Promise<Omit<Replica, "restart">> {
  const server = spawn(program, ["serve", "--config", "holdfast.yaml"], {
    cwd: folder,
    env: { ...process.env, HOLDFAST_DATABASE_URL: databaseUrl, ...(roles ? { HOLDFAST_ROLES: roles } : {}) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  const found = new Promise<[string, string]>((resolve, reject) => {
    const read = (chunk: Buffer) => {
      text += chunk;
      const line = text.split("\n").find((one) => one.includes("server ready"));
      const url = line && /\burl"?[=:]"?(http[^\s"]+)/.exec(line)?.[1];
      const admin = line && /\badmin"?[=:]"?(http[^\s"]+)/.exec(line)?.[1];
      if (url && admin) resolve([url, admin]);
    };
    server.stdout?.on("data", read);
    server.stderr?.on("data", read);
    server.on("exit", (code) => reject(new Error(`holdfast ended with ${code}:\n${text}`)));
    setTimeout(() => reject(new Error(`holdfast is not ready:\n${text}`)), 60_000).unref();
  });
  const [url, admin] = await found;
  return {
    url,
    admin,
    log: () => text,
    kill: async () => {
      server.kill("SIGKILL");
      await ended(server);
    },
  };
}

function firstLine(child: ChildProcess, name: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    child.stdout?.on("data", (chunk: Buffer) => {
      text += chunk;
      const end = text.indexOf("\n");
      if (end >= 0) resolve(text.slice(0, end));
    });
    child.on("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
  });
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  await new Promise((resolve) => child.once("exit", resolve));
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Lets what the page shows for a time stay for a minute: a busy machine may need longer to look. */
export async function keep(page: Page, ms: number): Promise<void> {
  await page.evaluate((ms) => {
    const real = window.setTimeout;
    window.setTimeout = ((run: () => void, after?: number) => real(run, after === ms ? 60_000 : after)) as typeof setTimeout;
  }, ms);
}

/** Presses keys in a row until the page has an address. A row of keys counts if it takes less than 1.5 seconds. */
export async function press(page: Page, keys: string[], address: RegExp): Promise<void> {
  await expect
    .poll(async () => {
      for (const key of keys) await page.keyboard.press(key);
      return page.url();
    })
    .toMatch(address);
}

/** axe fails if a page breaks a rule of WCAG 2.2 A or AA. */
export async function axe(page: Page): Promise<void> {
  await page.evaluate(axeSource);
  const violations = await page.evaluate(async () => {
    const run = (globalThis as unknown as { axe: { run: (options: unknown) => Promise<{ violations: Violation[] }> } }).axe.run;
    const result = await run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return result.violations.map(
      (v) => `${v.id}: ${v.help}\n${v.nodes.map((n) => `  ${n.html}\n    ${n.failureSummary}`).join("\n")}`,
    );
  });
  if (violations.length > 0) throw new Error(`axe at ${page.url()}:\n${violations.join("\n")}`);
}

interface Violation {
  id: string;
  help: string;
  nodes: { html: string; failureSummary: string }[];
}

/** hostile are texts that would run as a script, or break a page, where a page forgets that they are only text. */
export const hostile = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(2)>",
  '"><svg onload=alert(3)>',
  "javascript:alert(4)",
  "'-alert(5)-'",
  "{{constructor.constructor('alert(6)')()}}",
  '</title><iframe srcdoc="<script>parent.alert(7)</script>">',
  "[x](javascript:alert(8))",
  "__proto__",
  "\u202Etxt.exe",
  "&lt;b&gt; & %3Cscript%3E",
];
