import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Harness, start } from "./harness";

let h: Harness;
/** front is what operators reach: it passes connections to one replica, as a load balancer does. */
let front: Server;
let target = 0;
const sockets = new Set<Socket>();

beforeAll(async () => {
  h = await start({ replicas: 2 });
  front = createServer((client) => {
    const to = new URL(h.replicas[target]?.admin ?? "");
    const server = connect(Number(to.port), to.hostname);
    for (const [from, other] of [
      [client, server],
      [server, client],
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
  await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  front.close();
  for (const s of sockets) s.destroy();
  await h.close();
});

test("a stream goes on at another replica when its own is killed, whole and without doubles", async () => {
  const sent = await fetch(`${h.replicas[1]?.url}/`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "SendMessage",
      params: {
        message: { messageId: "m", role: "ROLE_USER", parts: [{ text: "chunks=300 size=40 delay=100ms" }] },
        configuration: { returnImmediately: true },
      },
    }),
  });
  const { id } = ((await sent.json()) as { result: { task: { id: string } } }).result.task;
  const page = await h.open(`/tasks/${id}?tab=log`);
  await page.goto(`http://127.0.0.1:${(front.address() as AddressInfo).port}/console/tasks/${id}?tab=artifacts`);
  await page.getByText("live", { exact: true }).waitFor();
  await page.locator(".artifact .part-text, .artifact .markdown").first().waitFor();

  target = 1;
  await h.replicas[0]?.kill();
  await page.getByText(/The stream was cut after event \d+ and went on .* later\. No event is missing or doubled\./).waitFor({
    timeout: 60_000,
  });
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/cut.png` });
  await page.locator(".page-head").getByText("Completed").waitFor({ timeout: 120_000 });

  // What the page has collected from two streams is what the log has.
  const admin = `${h.replicas[1]?.admin}/admin/v1/tasks/${id}`;
  const stored = (await (await fetch(`${admin}/artifacts`)).json()) as { artifacts: { id: string; chunks: number }[] };
  const artifact = stored.artifacts[0];
  if (!artifact) throw new Error("no artifact");
  const whole = await (await fetch(`${admin}/artifacts/${encodeURIComponent(artifact.id)}/parts/0`)).text();
  expect(whole.length).toBeGreaterThan(10_000);
  const shown = page.locator(".artifact .part-text, .artifact .markdown-plain, .artifact .markdown").first();
  const squeeze = (text: string) => text.replace(/\s+/g, "");
  await expect.poll(async () => squeeze((await shown.textContent()) ?? ""), { timeout: 30_000 }).toBe(squeeze(whole));
}, 240_000);
