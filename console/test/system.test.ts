// The pages about agents, webhooks, the system, the audit log and keys, on two replicas.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { visible } from "../src/lib/text";
import { axe, type Harness, hostile, start } from "./harness";

const evil = hostile.join(" ");
const config = `
push: {allow_private: true, https_only: false, validation_challenge: false, retry_first: 20ms, retry_most: 200ms}
retention: {tasks: 720h, audit: 8760h}
agents:
  - name: demo
    default: true
    executor: {kind: demo}
    card:
      name: ${JSON.stringify(evil)}
      description: ${JSON.stringify(evil)}
      skills: [{id: s, name: ${JSON.stringify(evil)}, description: ${JSON.stringify(evil)}, tags: [${JSON.stringify(evil)}]}]
  - name: far
    executor: {kind: worker}
    limits: {queue: 100, live_tasks: 20}
`;

let h: Harness;
let receiver: Server;
let host = "";
let accepts = false;
const got: string[] = [];

beforeAll(async () => {
  receiver = createServer((req, res) => {
    got.push(req.url ?? "");
    req.resume();
    res.writeHead(accepts ? 200 : 503).end(evil);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => receiver.once("listening", resolve));
  host = `127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  h = await start({ config, replicas: 2 });
  for (let i = 0; i < 6; i++) await h.send(`echo:${i}`);
  for (let i = 0; i < 3; i++) await h.send(`fail:no seat ${1000 + i}`);
  for (const text of hostile) await h.send(`fail:${text}`);
  await h.send("ask:which one?");
  await claim("w1", evil);
});
afterAll(async () => {
  receiver.close();
  await h.close();
});

const first = () => {
  const one = h.replicas[0];
  if (!one) throw new Error("no replica");
  return one;
};

/** claim connects a worker of the agent far. */
async function claim(id: string, name: string): Promise<void> {
  const worker = `0d9cfb5c-6d68-4a27-9a24-${Buffer.from(id.padEnd(6)).toString("hex")}`;
  const response = await fetch(`${first().url}/worker/v1/claims`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      worker: { id: worker, name: name.slice(0, 250), version: evil.slice(0, 100), sdk: evil.slice(0, 100) },
      agents: [{ name: "far", slots: 1 }],
      wait: 0,
    }),
  });
  if (!response.ok) throw new Error(await response.text());
}

/** hook creates a task with a webhook. */
async function hook(path: string, id = "c"): Promise<string> {
  const response = await fetch(first().url, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "SendMessage",
      params: {
        message: { messageId: `h-${path}`, role: "ROLE_USER", parts: [{ text: "echo:x" }] },
        configuration: { taskPushNotificationConfig: { id, url: `http://${host}/${path}` } },
      },
    }),
  });
  const answer = (await response.json()) as { result?: { task?: { id: string } } };
  if (!answer.result?.task) throw new Error(JSON.stringify(answer));
  return answer.result.task.id;
}

/** confirm gives a reason and presses the button of an open dialog. */
async function confirm(page: Page, verb: string, reason = "ticket 7"): Promise<void> {
  const dialog = page.getByRole("dialog").last();
  await dialog.getByLabel("Reason").fill(reason);
  await dialog.getByRole("button", { name: verb, exact: true }).click();
  await page.getByLabel("Reason").waitFor({ state: "hidden" });
}

test("agents show health, queues, charts and the signature", async () => {
  const page = await h.open("/agents");
  const demo = page.getByRole("article").filter({ has: page.getByRole("link", { name: "demo" }) });
  await demo.getByText("card signed").waitFor();
  await demo.getByRole("img", { name: /Tasks of demo that failed: 14 of 20/ }).waitFor();
  expect(await demo.locator("canvas").count()).toBe(3);
  await page.getByRole("article").filter({ hasText: "far" }).getByText("workers").waitFor();
  await page.getByRole("button", { name: "7d" }).click();
  await page.waitForURL("**/agents?window=7d");
  await demo.getByRole("link", { name: "demo" }).click();
  await page.getByRole("heading", { name: "Throughput" }).waitFor();
  expect(await page.locator("canvas").count()).toBe(4);

  await page.getByRole("tab", { name: "Failures" }).click();
  await page.getByRole("cell", { name: "no seat 1002" }).waitFor();
  const all = page.getByRole("link", { name: "Show all of them" });
  expect(await all.getAttribute("href")).toBe("/console/tasks?agent=demo&state=failed&state=rejected");
  // A reason is text, whatever it is.
  await page.getByText("<script>alert(1)</script>", { exact: true }).waitFor();
  // A group leads to its own tasks.
  await page
    .getByRole("row", { name: /no seat 1002/ })
    .getByRole("link", { name: "Show the tasks" })
    .click();
  await page.waitForURL(/\/tasks\?agent=demo&state=failed&reason=no\+seat\+1002/);
  await page.getByText("Searched").or(page.getByRole("row").nth(3)).first().waitFor();
  await expect.poll(() => page.getByRole("row").count()).toBe(4); // with the head
  await page.goBack();
  await page.getByRole("tab", { name: "Card" }).click();
  await page.getByText(visible(evil)).first().waitFor();
  await page.getByText(/^ES256 /).waitFor();
  await page.close();
});

test("a worker is retired", async () => {
  const page = await h.open("/agents/far?tab=workers");
  await page.getByRole("button", { name: "Retire" }).click();
  await confirm(page, "Retire the worker");
  await page.getByRole("cell", { name: "retired" }).waitFor();
  const rows = (await h.api("/audit?action=worker.retired")).rows as { entries: { reason: string }[] }[];
  expect(rows[0]?.entries[0]?.reason).toBe("ticket 7");
  await page.close();
});

test("a webhook that fails is found, disabled, enabled and delivered", async () => {
  const id = await hook("one");
  const page = await h.open("/webhooks");
  const row = page.getByRole("row").filter({ hasText: id.slice(-8) });
  await row.waitFor();
  await page.getByRole("button", { name: new RegExp(`^${host}`) }).click();
  await page.waitForURL(`**/webhooks?host=${host}`);
  await row.getByText(host).click();
  const dialog = page.getByRole("dialog").first();
  await dialog.getByRole("cell", { name: /503/ }).first().waitFor();
  await dialog.getByRole("button", { name: "Disable" }).click();
  await confirm(page, "Disable", "receiver is down");
  await dialog.getByText("receiver is down").waitFor();
  await dialog.getByRole("button", { name: "Enable" }).click();
  await confirm(page, "Enable");
  await dialog.getByRole("button", { name: "Disable" }).waitFor();
  accepts = true;
  const before = got.filter((url) => url === "/one").length;
  await dialog.getByRole("button", { name: "Redeliver" }).click();
  await page.getByLabel("From event").fill("1");
  await confirm(page, "Redeliver");
  await expect.poll(() => got.filter((url) => url === "/one").length).toBeGreaterThan(before);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Disabled" }).click();
  await page.getByRole("heading", { name: "No webhook matches" }).waitFor();
  accepts = false;
  await page.close();
});

test("one action is for all webhooks of a receiver", async () => {
  const ids = [await hook("three"), await hook("four")];
  const page = await h.open("/webhooks");
  const card = page.getByRole("list", { name: "Receivers that fail most" }).getByRole("listitem").filter({ hasText: host });
  await card.getByText(/webhooks failing since/).waitFor();
  await card.getByRole("button", { name: "Send a test" }).click();
  await confirm(page, "Send a test");
  await page.getByText("Not accepted: ").waitFor();
  await card.getByRole("button", { name: "Disable all" }).click();
  await confirm(page, "Disable all", "receiver is down");
  await page.getByText(/webhooks are disabled/).waitFor();
  for (const id of ids) {
    const { webhooks } = (await h.api(`/tasks/${id}/webhooks`)) as { webhooks: { disabled_for?: string }[] };
    expect(webhooks.map((w) => w.disabled_for)).toEqual(["receiver is down"]);
  }
  accepts = true;
  await card.getByRole("button", { name: "Enable all" }).click();
  await confirm(page, "Enable all");
  await expect.poll(() => ["/three", "/four"].every((path) => got.includes(path))).toBe(true);
  await card.waitFor({ state: "hidden" });
  accepts = false;
  await page.close();
});

test("the system shows replicas, storage, limits and what doctor finds", async () => {
  const page = await h.open("/system", { replica: 1 });
  await page.getByText("answers you").waitFor();
  expect(await page.getByRole("cell", { name: "alive" }).count()).toBe(2);
  await page.getByRole("tab", { name: "Storage" }).click();
  await page.getByRole("heading", { name: "What takes the space" }).waitFor();
  await page.getByRole("cell", { name: "Attempts to deliver" }).first().waitFor();
  await page.getByText("Nothing is past its retention").waitFor();
  await page.getByRole("tab", { name: "Limits" }).click();
  await page.getByRole("meter", { name: "streams of consoles" }).waitFor();
  await page.getByRole("cell", { name: "0 / 100" }).waitFor();
  await page.getByRole("tab", { name: "Doctor" }).click();
  await page.getByText("warning").first().waitFor({ timeout: 45_000 });
  await page.getByText("Fix:").first().waitFor();
  await page.close();
});

test("the audit log is filtered, opened and verified", async () => {
  const task = await h.send("ask:held?");
  await h.api(`/tasks/${task.id}/hold`, { reason: evil });
  const page = await h.open("/audit");
  await page.getByLabel("Action").fill("task.held");
  await page.getByLabel("Who acts").selectOption("operator");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL("**/audit?action=task.held&method=operator");
  const row = page.getByRole("row").filter({ hasText: task.id.slice(-8) });
  await row.getByText("task.held").click();
  await page.getByRole("dialog").getByText("<script>alert(1)</script>").first().waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Verify the log" }).click();
  await page.getByRole("dialog").getByText("intact").waitFor();
  await page.keyboard.press("Escape");
  await page.getByLabel("Task").fill("none");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.getByRole("heading", { name: "No entry matches" }).waitFor();
  await page.close();
});

test("the audit log is read by pages", async () => {
  const task = await h.send("ask:many?");
  for (let i = 0; i < 120; i++) {
    await h.api(`/tasks/${task.id}/hold`, { reason: `r${i}` });
    await h.api(`/tasks/${task.id}/release`, { reason: `s${i}` });
  }
  const page = await h.open(`/audit?task=${task.id}`);
  await page.getByRole("row").filter({ hasText: "s119" }).waitFor();
  const oldest = page.getByRole("row").filter({ hasText: "task.created" });
  for (let i = 0; i < 150 && !(await oldest.isVisible()); i++) {
    await page.locator(".table").evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await page.waitForTimeout(300);
  }
  await oldest.waitFor();
  await page.getByText("This is the beginning of the log.").waitFor();
  await page.close();
});

test("a key is created, shown once, and revoked", async () => {
  const page = await h.open("/keys");
  await page.getByRole("heading", { name: "There is no API key" }).waitFor();
  await page.getByText("This server accepts no API keys").waitFor();
  await page.getByRole("button", { name: "Create a key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Acts as").fill("robot");
  await dialog.getByLabel("Name", { exact: true }).fill("<img src=x onerror=alert(1)>");
  await dialog.getByLabel("Scopes").fill("weather:use admin:view");
  await confirm(page, "Create the key");
  const secret = (await page.getByTestId("secret").textContent()) ?? "";
  expect(secret).toMatch(/^hfk_/);
  await axe(page);
  await page.getByRole("button", { name: "I have stored it" }).click();
  await page.getByRole("row").filter({ hasText: "<img src=x" }).waitFor();
  expect(await page.content()).not.toContain(secret);
  await page.getByRole("button", { name: "Revoke" }).click();
  await confirm(page, "Revoke the key", "leaked");
  await page.getByRole("gridcell", { name: "revoked" }).waitFor();
  await page.close();
});

const pages = [
  "/agents",
  "/agents/demo",
  "/agents/demo?tab=failures",
  "/agents/demo?tab=card",
  "/agents/far?tab=workers",
  "/webhooks?show=all",
  "/webhooks?show=due",
  "/system",
  "/system?tab=storage",
  "/system?tab=limits",
  "/system?tab=doctor",
  "/audit",
  "/keys",
];

test("each page is accessible in both themes, in a small window and on a phone", async () => {
  await hook("two");
  const shots = process.env.SHOTS;
  for (const view of [
    { theme: "light" },
    { theme: "dark" },
    { theme: "dark", tablet: true },
    { theme: "light", phone: true },
  ] as const) {
    const page = await h.open("/agents", view);
    for (const path of pages) {
      await page.goto(`${first().admin}/console${path}`);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.waitForFunction(() => !/Loading…|the checks run/.test(document.body.innerText), undefined, {
        timeout: 45_000,
      });
      await page.waitForTimeout(300);
      await axe(page);
      // Nothing but tables scrolls sideways.
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), path).toBe(true);
      if (shots) {
        const name = path.slice(1).replace(/[^a-z]+/g, "-");
        await page.screenshot({
          path: `${shots}/${name}-${view.theme}${"phone" in view ? "-phone" : "tablet" in view ? "-tablet" : ""}.png`,
        });
      }
    }
    await page.close();
  }
}, 400_000);
