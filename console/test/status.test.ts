import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { axe, type Harness, start } from "./harness";

vi.setConfig({ testTimeout: 600_000, hookTimeout: 300_000 }); // a busy machine takes its time
const patient = { timeout: 60_000 };

let h: Harness;

beforeAll(async () => {
  h = await start({
    config: `agents:
  - {name: demo, default: true, executor: {kind: demo}}
  - {name: billing, executor: {kind: http, http: {url: "http://127.0.0.1:1/"}}}
  - {name: far, executor: {kind: worker}}
  - {name: second, executor: {kind: demo}}
`,
  });
});
afterAll(async () => {
  await h.close();
});

const lines = (page: Page, within: string) => page.locator(within).locator(".status-line-text");

test("what a task does or waits for is one text in the header, the tabs, the list and Talk", async () => {
  const texts = new Map<string, string>();
  for (const [agent, script, begins] of [
    ["far", "x", /^Waits for a worker of agent far: none of its workers is connected$/],
    ["demo", "hold", /^Running on .*, try 1 of \d+$/],
    ["demo", "wait=1h", /^Sleeps$/],
    ["demo", "call=second hold", /^Waits for 1 of 1 called tasks$/],
    ["demo", "ask:which?", /^Waits for the client's answer$/],
    ["billing", "x", /^Agent billing is away: .*connection refused/],
    ["demo", "fail:no seat", /^Failed: no seat$/],
  ] as const) {
    const { id } = await h.send(script, { agent, now: true });
    const read = async () => {
      const task = (await h.api(`/tasks/${id}`)) as { status_line: { text: string } };
      return task.status_line.text;
    };
    await expect.poll(read, patient).toMatch(begins);
    texts.set(id, await read());
  }
  const list = await h.open("/tasks", { keep: true });
  for (const text of texts.values()) await list.getByRole("row").getByText(text, { exact: true }).first().waitFor();
  for (const [id, text] of texts) {
    const shown = (within: string) => expect.poll(() => lines(page, within).allTextContents(), patient).toEqual([text]);
    const page = await h.open(`/tasks/${id}`);
    await shown(".task-status");
    if (!text.startsWith("Failed")) await shown(".conversation");
    await page.getByRole("tab", { name: /^Timeline/ }).click();
    await shown(".timeline");
    expect(await page.getByText("The agent works").or(page.getByText("just created")).count()).toBe(0);
    if (!text.includes("away")) continue;
    await axe(page);
    await page.goto(page.url().replace(/tasks.*/, `talk?agent=billing&task=${id}`));
    await shown(".taskbar-line");
    await axe(page);
  }
});

test("an agent is healthy only with evidence, and doctor names it once", async () => {
  await h.send("x", { agent: "billing", now: true });
  const page = await h.open("/agents");
  const tag = (agent: string, health: string) =>
    page
      .getByRole("article")
      .filter({ has: page.getByRole("link", { name: agent, exact: true }) })
      .getByText(health, { exact: true })
      .waitFor();
  await tag("billing", "away");
  await tag("far", "no worker");
  await tag("demo", "failing"); // it has failed one task, and completed none
  await h.send("echo:x");
  await tag("demo", "healthy");
  await page.goto(page.url().replace("/agents", "/system?tab=doctor"));
  const about = page.locator(".finding").filter({ has: page.getByRole("link", { name: "billing", exact: true }) });
  await about.first().waitFor();
  expect(await about.count()).toBe(1);
  await about.getByRole("link").click();
  await page.waitForURL("**/agents/billing");
  await page
    .getByRole("status")
    .getByText(/^Away for/)
    .waitFor();
});

test("no limit is not zero bytes", async () => {
  const page = await h.open("/system?tab=limits");
  await page.getByText("what the machine or its control group has").waitFor();
  expect(await page.getByText("0 B", { exact: true }).count()).toBe(0);
});
