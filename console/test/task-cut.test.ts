import { afterAll, beforeAll, expect, test } from "vitest";
import { type Front, front, type Harness, start } from "./harness";

let h: Harness;
let balancer: Front;

beforeAll(async () => {
  h = await start({ replicas: 2 });
  balancer = await front(h);
});
afterAll(async () => {
  balancer.close();
  await h.close();
});

test("a stream goes on at another replica when its own is killed, whole and without doubles", async () => {
  const { id } = await h.send("chunks=300 size=40 delay=100ms", { replica: 1, now: true });
  const page = await h.open(`/tasks/${id}?tab=log`);
  await page.goto(`${balancer.url}/console/tasks/${id}?tab=artifacts`);
  await page.getByText("live", { exact: true }).waitFor();
  await page.locator(".artifact .part-text, .artifact .markdown").first().waitFor();

  balancer.point(1);
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
  await expect.poll(async () => squeeze((await shown.textContent()) ?? "")).toBe(squeeze(whole));
}, 240_000);
