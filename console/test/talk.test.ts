import { execFile } from "node:child_process";
import { mkdirSync } from "node:fs";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { axe, type Harness, keep, hostile as shared, start, type View } from "./harness";
import { hostile, listen, png } from "./talk-agent";

// Streams take their time.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

let h: Harness;
let agent: { url: string; close: () => void };
beforeAll(async () => {
  agent = await listen();
  h = await start({
    config: `auth: {schemes: [{name: keys, kind: api_key}]}
agents:
  - {name: demo, default: true, auth: {schemes: []}, executor: {kind: demo}}
  - {name: forms, auth: {schemes: []}, executor: {kind: http, http: {url: "${agent.url}"}}}
  - {name: guarded, auth: {scope: "agents:guarded"}, executor: {kind: demo}}
`,
  });
});
afterAll(async () => {
  await h.close();
  agent.close();
});

/** shot keeps a picture for people, if CONSOLE_SHOTS names a folder. */
async function shot(page: Page, name: string): Promise<void> {
  const folder = process.env.CONSOLE_SHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: `${folder}/${name}.png` });
}

const pages: Page[] = [];
afterEach(async () => {
  for (const page of pages.splice(0)) await page.close();
});

async function open(view?: View): Promise<Page> {
  const page = await h.open("/talk", view);
  pages.push(page);
  page.setDefaultTimeout(60_000);
  await page.getByRole("textbox", { name: /^(Message|Answer)$/ }).waitFor();
  return page;
}

const log = (page: Page) => page.getByRole("log");
const state = (page: Page, name: string) => page.locator(".taskbar .badge", { hasText: name }).waitFor();

async function say(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: /^(Message|Answer)$/ }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

async function choose(
  page: Page,
  some: { agent?: string; version?: string; binding?: string; stream?: boolean },
): Promise<void> {
  if (some.agent) await page.getByLabel("Agent", { exact: true }).selectOption(some.agent);
  if (some.version) await page.getByLabel("Version").selectOption(some.version);
  if (some.binding) await page.getByLabel("Binding").selectOption(some.binding);
  if (some.stream !== undefined) await page.getByLabel("Stream", { exact: true }).setChecked(some.stream);
}

test("sends and streams in every version and binding", async () => {
  const page = await open();
  for (const [version, binding, method] of [
    ["1.0", "jsonrpc", "SendStreamingMessage"],
    ["1.0", "rest", "POST /message:stream"],
    ["0.3", "jsonrpc", "message/stream"],
    ["0.3", "rest", "POST /v1/message:stream"],
    ["0.2", "jsonrpc", "message/stream"],
    ["0.1", "jsonrpc", "tasks/sendSubscribe"],
  ] as const) {
    for (const stream of [true, false]) {
      await choose(page, { version, binding, stream });
      const text = `hello ${version} ${binding} ${stream}`;
      await say(page, `echo:${text}`);
      await log(page).locator(".artifact", { hasText: text }).waitFor();
      await state(page, "Completed");
      const frames = page.getByRole("region", { name: "Frames on the wire" });
      if (stream) {
        await frames.getByText(method).waitFor();
        await frames.locator(".frame-id").first().waitFor();
      } else expect(await frames.locator('[data-kind="event"]').count()).toBe(0);
      const task = (await page.locator(".taskbar-task").textContent()) ?? "";
      const stored = await h.api(`/tasks/${encodeURIComponent(task)}`);
      expect([stored.state, stored.dialect]).toEqual(["completed", version === "0.2" ? "0.3" : version]);
      await page.getByRole("button", { name: "New conversation" }).click();
    }
  }
  expect(await page.getByRole("navigation", { name: "Conversations" }).getByRole("listitem").count()).toBe(12);
  expect(await h.api("/audit?limit=1")).toMatchObject({ rows: [{ entries: [{ method: "operator", reason: "talk" }] }] });
});

/** A reader sees a cut for 4 seconds. */
const keepCuts = (page: Page) => keep(page, 4000);

test("a stream that is cut goes on whole by Last-Event-ID", async () => {
  const page = await open();
  await keepCuts(page);
  for (const [version, binding] of [
    ["1.0", "jsonrpc"],
    ["1.0", "rest"],
    ["0.3", "jsonrpc"],
    ["0.3", "rest"],
    ["0.1", "jsonrpc"],
  ] as const) {
    await choose(page, { version, binding });
    await say(page, "chunks=99 size=60 delay=80ms");
    await page.locator(".taskbar-id", { hasText: /event ([5-9]|\d\d+)-/ }).waitFor();
    await page.getByRole("button", { name: "Cut the connection" }).click();
    await log(page).getByText("You cut the connection").waitFor();
    if (binding === "rest" && version === "1.0") await shot(page, "talk-cut");
    await page.getByRole("button", { name: "Resume now" }).click();
    await state(page, "Completed");
    await log(page).getByText("whole: every event came once").waitFor();
    const ids = await page.locator(".frame-id").allTextContents();
    const seqs = ids.map((id) => Number(/id (\d+)/.exec(id)?.[1]));
    expect(new Set(seqs).size).toBe(seqs.length);
    expect(seqs).toEqual([...seqs].sort((a, b) => a - b));
    const text = (await log(page).locator(".artifact .parts").textContent()) ?? "";
    expect(text.match(/000000\d\d /g)).toEqual(Array.from({ length: 99 }, (_, i) => `000000${String(i).padStart(2, "0")} `));
    await page.getByRole("button", { name: "New conversation" }).click();
  }
});

test("a stream goes on by itself", async () => {
  const page = await open();
  await say(page, "chunks=60 size=60 delay=150ms");
  await page.locator(".taskbar-id", { hasText: /event \d+-/ }).waitFor();
  await page.getByRole("button", { name: "Cut the connection" }).click();
  await log(page).getByText("Resumed").waitFor();
  await log(page).getByText("whole: every event came once").waitFor({ timeout: 30_000 });
});

test("a question that comes after a cut can be answered", async () => {
  const page = await open();
  await keepCuts(page);
  for (const version of ["1.0", "0.3"]) {
    await choose(page, { agent: "forms", version });
    await say(page, "later");
    await page.locator(".taskbar-id", { hasText: /event ([5-9]|\d\d+)-/ }).waitFor();
    await page.getByRole("button", { name: "Cut the connection" }).click();
    await page.getByRole("button", { name: "Resume now" }).click();
    await state(page, "Input required");
    await say(page, "yes");
    await state(page, "Completed");
    expect(
      await log(page)
        .getByText(/^step \d+$/)
        .count(),
    ).toBe(30);
    await page.getByRole("button", { name: "New conversation" }).click();
  }
});

test("a question with a schema is a form, and the answer is data", async () => {
  const page = await open();
  await choose(page, { agent: "forms" });
  await say(page, "form");
  const form = page.getByRole("form", { name: "Your trip" });
  await form.waitFor();
  await axe(page);
  await form.getByRole("button", { name: "Send the answer" }).click();
  await form.getByText("This is needed.").first().waitFor();
  expect(await form.getByLabel("Name").evaluate((e) => e === document.activeElement)).toBe(true);
  await form.getByLabel("Name").fill("Ada");
  await form.getByLabel("Email").fill("ada");
  await form.getByLabel("Seats").fill("12345678901234567890");
  await form.getByRole("button", { name: "Send the answer" }).click();
  await form.getByText("The most is 9.").waitFor();
  await form.getByLabel("Seats").fill("2");
  await form.getByLabel("Email").fill("ada@example.com");
  await form.getByLabel("Class").selectOption("b");
  await form.getByLabel("With bags").check();
  await shot(page, "talk-form");
  await form.getByRole("button", { name: "Send the answer" }).click();
  await state(page, "Completed");
  const task = (await page.locator(".taskbar-task").textContent()) ?? "";
  const stored = JSON.stringify(await h.api(`/tasks/${task}/log`));
  expect(stored).toContain('{"name":"Ada","email":"ada@example.com","day":"2026-12-24","seats":2,"class":"b","bags":true}');
});

test("approval and choices are buttons", async () => {
  const page = await open();
  await choose(page, { agent: "forms", version: "0.3" });
  await say(page, "approve");
  await page.getByText("Pay 199 € for DY 1303?").last().waitFor();
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await state(page, "Completed");
  await log(page).locator(".bubble-user", { hasText: '"approved": true' }).waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
  await say(page, "options");
  await page.getByRole("button", { name: "SK 4035" }).click();
  await state(page, "Completed");
  await log(page).locator(".artifact", { hasText: "SK 4035" }).waitFor();
});

test("the page of a task has the form of its question, too", async () => {
  const { id } = await h.send("form", { agent: "forms" });
  const page = await h.open(`/tasks/${id}`);
  pages.push(page);
  const form = page.getByRole("form", { name: "Your trip" });
  await form.getByLabel("Name").fill("Ada");
  await form.getByLabel("Seats").fill("2");
  // What the form shows is closed as JSON.
  await page.getByRole("button", { name: "as JSON" }).waitFor();
  expect(await page.getByText("requestedSchema").count()).toBe(0);
  await axe(page);
  await form.getByRole("button", { name: "Send the answer" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText('"Ada"').waitFor();
  await dialog.getByLabel("Reason").fill("asked by phone");
  await dialog.getByRole("button", { name: "Answer" }).click();
  await page.locator(".page-head").getByText("Completed").waitFor();
  expect(JSON.stringify(await h.api(`/tasks/${id}/log`))).toContain('"name":"Ada"');
  // And back to Talk, for another question.
  const { id: other } = await h.send("options", { agent: "forms" });
  await page.goto(`${h.replicas[0]?.admin}/console/tasks/${other}`);
  await page.getByRole("button", { name: "SK 4035" }).waitFor();
  await page.getByRole("link", { name: "Continue in Talk" }).click();
  await log(page).getByText("Which one?").waitFor();
});

test("files come by drop, paste and choice", async () => {
  const page = await open();
  await choose(page, { agent: "forms" });
  await page
    .getByLabel("Files to attach")
    .setInputFiles({ name: "chosen.txt", mimeType: "text/plain", buffer: Buffer.from("hello") });
  for (const [kind, name] of [
    ["drop", "dropped.png"],
    ["paste", "pasted.png"],
  ] as const) {
    await page.evaluate(
      ([kind, name, png]) => {
        const bytes = Uint8Array.from(atob(png as string), (c) => c.charCodeAt(0));
        const transfer = new DataTransfer();
        transfer.items.add(new File([bytes], name as string, { type: "image/png" }));
        const event =
          kind === "drop"
            ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
            : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true });
        document.querySelector(kind === "drop" ? ".thread" : ".composer textarea")?.dispatchEvent(event);
      },
      [kind, name, png],
    );
    await page.getByRole("list", { name: "Attached files" }).getByText(name).waitFor();
  }
  await say(page, "files");
  const got = log(page).locator(".artifact", { hasText: "got" });
  await got.getByText("chosen.txt text/plain 5").waitFor();
  const length = Buffer.from(png, "base64").length;
  expect(await got.textContent()).toContain(`dropped.png image/png ${length}`);
  expect(await got.textContent()).toContain(`pasted.png image/png ${length}`);
  await expect
    .poll(() =>
      log(page)
        .locator("img")
        .evaluateAll((all) => all.map((i) => (i as HTMLImageElement).naturalWidth)),
    )
    .toEqual([1, 1]);
});

test("a task can be canceled, and a conversation goes on", async () => {
  const page = await open();
  await say(page, "hold");
  await state(page, "Working");
  await page.getByRole("button", { name: "Cancel the task" }).click();
  await state(page, "Canceled");
  const first = await page.locator(".taskbar-task").textContent();
  await say(page, "ask:Where to?");
  await state(page, "Input required");
  const second = await page.locator(".taskbar-task").textContent();
  expect(second).not.toBe(first);
  await page.getByLabel("Version").selectOption("0.3");
  await page.getByRole("textbox", { name: "Answer" }).waitFor();
  await say(page, "Oslo");
  await state(page, "Completed");
  expect(await page.locator(".taskbar-task").textContent()).toBe(second);
  const tasks = await Promise.all([first, second].map((id) => h.api(`/tasks/${id}`)));
  expect(tasks[0]?.context_id).toBe(tasks[1]?.context_id);

  // Another conversation beside it, and back.
  await page.getByRole("button", { name: "New conversation" }).click();
  await say(page, "echo:beside");
  await state(page, "Completed");
  await page.getByRole("navigation", { name: "Conversations" }).getByRole("button", { name: /^hold/ }).click();
  await log(page).getByText("Where to?").first().waitFor();
  expect(await log(page).getByText("beside").count()).toBe(0);
  await page.getByRole("button", { name: "Close echo:beside" }).click();
  expect(await page.getByRole("navigation", { name: "Conversations" }).getByRole("listitem").count()).toBe(1);

  // A task of another client, from a link.
  const { id } = await h.send("ask:Which one?");
  await page.goto(`${h.replicas[0]?.admin}/console/talk?agent=demo&task=${id}`);
  await log(page).getByText("Which one?").waitFor();
  await say(page, "this one");
  await state(page, "Completed");
});

test("a caller is named, and has only the scopes that it is given", async () => {
  const page = await open();
  await choose(page, { agent: "guarded" });
  await page.getByText("Name the caller in whose name you talk.").last().waitFor();
  expect(
    await page
      .getByRole("textbox", { name: "Message" })
      .fill("echo:x")
      .then(() => page.getByRole("button", { name: "Send", exact: true }).isDisabled()),
  ).toBe(true);
  await page.getByLabel("As", { exact: true }).fill("älice");
  await page.getByLabel("Tenant").fill("acme");
  await say(page, "echo:secret");
  await log(page).getByRole("alert").getByText("the scope agents:guarded is needed").waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.getByRole("button", { name: "More" }).click();
  await page.getByLabel(/Scopes of the caller/).fill("agents:guarded");
  await page.getByLabel(/Reason/).fill("ticket 7");
  await say(page, "echo:secret");
  await state(page, "Completed");
  const id = await page.locator(".taskbar-task").textContent();
  expect(await h.api(`/tasks/${id}`)).toMatchObject({ owner: "älice", tenant: "acme" });
  expect(await h.api("/audit?limit=1")).toMatchObject({
    rows: [{ entries: [{ method: "operator", reason: "ticket 7", subject: "älice" }] }],
  });
});

test("a request of the wire runs as it was copied", async () => {
  const page = await open();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await say(page, "echo:it's copied");
  await state(page, "Completed");
  await page.getByRole("button", { name: /SendStreamingMessage/ }).click();
  await Promise.all([
    page.getByText("Copied", { exact: true }).first().waitFor({ state: "attached" }),
    page.getByRole("button", { name: "curl" }).click(),
  ]);
  const command = await page.evaluate(() => navigator.clipboard.readText());
  expect(command).toContain(`${h.replicas[0]?.url}/agents/demo`);
  const { stdout } = await promisify(execFile)("bash", ["-c", command]);
  expect(stdout).toContain("it's copied");
  expect(stdout).toMatch(/^id: \d+-/m);
});

test("nothing of an agent's output runs, frames or fetches", async () => {
  const page = await open();
  const elsewhere: string[] = [];
  page.on("request", (r) => {
    if (!r.url().startsWith(h.replicas[0]?.admin ?? "") && !r.url().startsWith("blob:")) elsewhere.push(r.url());
  });
  await choose(page, { agent: "forms" });
  await say(page, "hostile");
  await state(page, "Input required");
  await page.getByRole("form").waitFor();
  await shot(page, "talk-hostile");
  for (const text of shared) {
    await page.getByRole("button", { name: "New conversation" }).click();
    await say(page, text);
    await log(page).locator(".bubble-user").waitFor();
    await state(page, "Completed");
  }
  await page
    .getByRole("navigation", { name: "Conversations" })
    .getByRole("button", { name: /^hostile/ })
    .click();
  for (const frame of await page.locator(".frame-head").all()) await frame.click();
  expect(await page.evaluate(() => (globalThis as Record<string, unknown>).pwned)).toBeUndefined();
  expect(await page.locator("iframe, .thread script, .thread style, .thread form form, .thread link").count()).toBe(0);
  expect(
    await page.locator(".thread img").evaluateAll((all) => all.map((i) => (i as HTMLImageElement).src.slice(0, 5))),
  ).toEqual(["blob:"]);
  expect(await page.locator('a[href^="javascript"]').count()).toBe(0);
  expect(await log(page).textContent()).toContain(hostile[0]);
  expect(elsewhere).toEqual([]);
});

test("is accessible in both themes, in a small window and on a phone", async () => {
  for (const view of [
    { theme: "light" },
    { theme: "dark" },
    { theme: "light", tablet: true },
    { theme: "dark", phone: true },
  ] as const) {
    const page = await open(view);
    await keepCuts(page);
    const name = `${view.theme}${"phone" in view ? "-phone" : ""}`;
    await axe(page);
    await shot(page, `talk-empty-${name}`);
    await say(page, "chunks=99 size=70 delay=80ms");
    await page.locator(".taskbar-id", { hasText: /event ([5-9]|\d\d+)-/ }).waitFor();
    await page.getByRole("button", { name: "Cut the connection" }).click();
    await log(page).getByText("You cut the connection").waitFor();
    await axe(page);
    await page.getByRole("button", { name: "Resume now" }).click();
    await log(page).getByText("whole: every event came once").waitFor();
    await say(page, "data");
    await state(page, "Completed");
    await shot(page, `talk-${name}`);
    await axe(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
    if ("phone" in view || "tablet" in view) {
      await page.getByRole("button", { name: /^Wire/ }).click();
    }
    await page
      .getByRole("button", { name: /SendStreamingMessage/ })
      .first()
      .click();
    await shot(page, `talk-wire-${name}`);
    await axe(page);
  }
});
