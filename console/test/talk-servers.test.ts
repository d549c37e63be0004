// Talk where more than one server takes part: an agent that is another A2A server, and two replicas of which one dies.
import type { Page } from "playwright-core";
import { afterAll, expect, test, vi } from "vitest";
import { front, type Harness, start } from "./harness";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const running: (() => unknown)[] = [];
afterAll(async () => {
  for (const end of running.reverse()) await end();
});

async function servers(options: Parameters<typeof start>[0]): Promise<Harness> {
  const h = await start(options);
  running.push(h.close);
  return h;
}

const log = (page: Page) => page.getByRole("log");

async function say(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: /^(Message|Answer)$/ }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

test("an agent of another A2A server streams, asks, and takes the answer", async () => {
  const other = await servers({});
  const remote = other.replicas[0]?.url ?? "";
  const h = await servers({
    config: `agents:
  - {name: far, default: true, executor: {kind: a2a, a2a: {card_url: "${remote}"}}}
`,
  });
  const page = await h.open("/talk");
  await say(page, "chunks=20 size=30 delay=50ms");
  await page.locator(".taskbar .badge", { hasText: "Completed" }).waitFor({ timeout: 60_000 });
  await say(page, "ask:Which city?");
  await log(page).getByText("Which city?", { exact: true }).waitFor({ timeout: 60_000 });
  await say(page, "Oslo");
  await page.locator(".taskbar .badge", { hasText: "Completed" }).waitFor({ timeout: 60_000 });

  // The other server has run both tasks, and its log has what was said here.
  const tasks = (await other.api("/tasks")).tasks as { id: string; state: string; turns: number }[];
  expect(tasks.map((t) => [t.state, t.turns])).toEqual([
    ["completed", 2],
    ["completed", 1],
  ]);
  expect(JSON.stringify(await other.api(`/tasks/${tasks[0]?.id}/log`))).toContain("Oslo");
});

test("a streamed answer goes on whole when the replica that serves it is killed", async () => {
  // The first replica serves clients and runs no agents, so that the answer itself goes on.
  const h = await servers({ replicas: 2, roles: ["api", "api,worker,push"] });
  const balancer = await front(h);
  running.push(balancer.close);
  const page = await h.open("/talk");
  await page.goto(`${balancer.url}/console/talk`);
  await say(page, "chunks=150 size=40 delay=100ms");
  await log(page).locator(".artifact").first().waitFor();
  balancer.point(1);
  await h.replicas[0]?.kill();
  await log(page)
    .getByText(/The connection broke/)
    .first()
    .waitFor();
  await log(page).getByText("Resumed").first().waitFor({ timeout: 60_000 });
  await page.locator(".taskbar .badge", { hasText: "Completed" }).waitFor({ timeout: 120_000 });
  await log(page).getByText("whole: every event came once").waitFor({ timeout: 60_000 });
});
