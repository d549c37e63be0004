import { execFile } from "node:child_process";
import { createServer as createHttp, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { axe, type Harness, hostile, start } from "./harness";

let h: Harness;
let receiver: HttpServer;
let hook = "";
let accepts = false;
let deliveries = 0;

const config = `
admin: {trace_url: "https://tempo.example/trace/{trace_id}"}
push:
  allow_private: true
  retry_first: 100ms
  retry_most: 1s
agents:
  - name: demo
    default: true
    executor: {kind: demo}
    limits: {max_attempts: 2, backoff: 200ms}
  - name: second
    executor: {kind: demo}
`;

beforeAll(async () => {
  receiver = createHttp((request, response) => {
    request.resume();
    if (accepts) deliveries++;
    response.statusCode = accepts ? 200 : 500;
    response.end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  hook = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
  h = await start({ config });
});
afterAll(async () => {
  receiver.close();
  await h.close();
});

/** send sends a message with any parts, and with a webhook. */
async function send(
  parts: unknown[],
  more: { webhook?: boolean; now?: boolean; metadata?: unknown; message?: object } = {},
): Promise<string> {
  const response = await fetch(`${h.replicas[0]?.url}/`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "SendMessage",
      params: {
        message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts, ...more.message },
        metadata: more.metadata,
        configuration: {
          returnImmediately: more.now ?? false,
          ...(more.webhook ? { taskPushNotificationConfig: { id: "hook", url: hook } } : {}),
        },
      },
    }),
  });
  const answer = (await response.json()) as { result?: { task?: { id: string } } };
  const id = answer.result?.task?.id;
  if (!id) throw new Error(JSON.stringify(answer));
  return id;
}

async function shot(page: Page, name: string): Promise<void> {
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${name}.png` });
}

async function tab(page: Page, name: string): Promise<void> {
  await page.getByRole("tab", { name: new RegExp(`^${name}`) }).click();
}

/** more chooses what few tasks need. */
async function more(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: "More", exact: true }).click();
  await page.getByRole("menuitem", { name: new RegExp(`^${name}`) }).click();
}

test("the trace of a task is a link to the operators' tool, without a referrer", async () => {
  const trace = "0af7651916cd43dd8448eb211c80319c";
  const response = await fetch(`${h.replicas[0]?.url}/`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0", traceparent: `00-${trace}-b7ad6b7169203331-01` },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "SendMessage",
      params: { message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: "echo:traced" }] } },
    }),
  });
  const { result } = (await response.json()) as { result: { task: { id: string } } };
  const page = await h.open(`/tasks/${result.task.id}`);
  const link = page.getByRole("link", { name: trace.slice(0, 12) });
  await link.waitFor();
  expect(await link.count()).toBe(1);
  expect(await link.getAttribute("href")).toBe(`https://tempo.example/trace/${trace}`);
  expect(await link.getAttribute("rel")).toBe("noreferrer noopener");
  expect(await link.getAttribute("target")).toBe("_blank");
  await axe(page);
});

test("an operator finds why a task failed, retries it and redelivers its webhook", async () => {
  accepts = false;
  const id = await send([{ text: "fail:the model server at 10.0.0.7 refused the connection" }], { webhook: true });
  const page = await h.open(`/tasks/${id}`);
  await page.getByText("Failed in run 1").waitFor();
  await page.getByText("refused the connection").first().waitFor();
  await shot(page, "failed");

  // A reason is required, and the new task is one click away.
  await page.getByRole("button", { name: "Retry" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("model server is back, ticket 7");
  await shot(page, "retry");
  await dialog.getByRole("button", { name: "Send again" }).click();
  await page.getByText("The message was sent again, as a new task.").waitFor();
  await page.getByRole("link", { name: "Open the new task" }).click();
  await page.waitForURL((url) => !url.pathname.includes(id));
  await page.getByText("Failed in run 1").waitFor();

  await page.goto(`${h.replicas[0]?.admin}/console/tasks/${id}`);
  await page.getByText("A webhook of this task is not delivered").waitFor();
  await page.getByRole("button", { name: "See why" }).click();
  await page.getByRole("cell", { name: "500" }).first().waitFor();
  await shot(page, "webhooks");
  await axe(page);
  accepts = true;
  const before = deliveries;
  await page.getByRole("button", { name: "Disable" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("receiver is mended");
  await page.getByRole("dialog").getByRole("button", { name: "Disable" }).click();
  await page.getByText("The webhook is disabled.").waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("go");
  await page.getByRole("dialog").getByRole("button", { name: "Enable" }).click();
  await page.getByText("delivered", { exact: true }).first().waitFor();
  await page.getByRole("button", { name: "Redeliver" }).click();
  await page.getByRole("dialog").getByLabel("From event").fill("1");
  await page.getByRole("dialog").getByLabel("Reason").fill("the receiver lost it");
  await page.getByRole("dialog").getByRole("button", { name: "Redeliver" }).click();
  await page.getByText("The webhook is due now.").waitFor();
  await expect.poll(() => deliveries).toBeGreaterThan(before + 1);
});

test("a question is answered, a task is held, released and purged", async () => {
  const id = await send([{ text: "ask:Which **city**?" }]);
  const page = await h.open(`/tasks/${id}`);
  await page.locator(".markdown strong", { hasText: "city" }).waitFor();
  await shot(page, "question");
  // The button at the top leads to the form below the question.
  await page.locator(".page-head").getByRole("button", { name: "Answer" }).click();
  const words = page.getByLabel("Answer in words");
  await expect.poll(() => words.evaluate((e) => e === document.activeElement)).toBe(true);
  await words.fill("Oslo");
  await page.getByRole("region", { name: "Answer" }).getByRole("button", { name: "Answer" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("the client asked by phone");
  await page.getByRole("dialog").getByRole("button", { name: "Answer" }).click();
  await page.getByText("The answer was sent. The task continues.").waitFor();
  // It comes by the stream: nothing was reloaded.
  await page.getByText("You answered: Oslo").waitFor();
  await page.getByText("Turn 2").waitFor();
  for (const [button, said] of [
    ["Hold", "The task is held: retention and purges leave it."],
    ["Release", "The hold is over."],
  ] as const) {
    await more(page, button);
    await page.getByRole("dialog").getByLabel("Reason").fill("audit");
    await page.getByRole("dialog").getByRole("button", { name: button, exact: true }).click();
    await page.getByText(said).waitFor();
  }
  await more(page, "Purge");
  await page.getByRole("dialog").getByLabel("Reason").fill("asked by the owner");
  await page.getByRole("dialog").getByRole("button", { name: "Purge" }).click();
  await page.getByText("The task was deleted").waitFor();
  await page.reload();
  await page.getByText("There is no such task").waitFor();
  await axe(page);
});

test("a waterfall has the runs of a task and of those that it called, and leads to the log", async () => {
  const id = await send([{ text: "call=second,second hold" }], { now: true });
  const page = await h.open(`/tasks/${id}?tab=timeline`);
  const table = page.getByRole("group", { name: "Waterfall" });
  const row = (name: RegExp) => table.getByRole("row", { name });
  await row(/^Run 1/).waitFor();
  await row(/Waits for 2 called tasks/).waitFor();
  await row(/second Working/)
    .first()
    .waitFor();
  await table.getByRole("button", { name: "What Called task second has done" }).first().click();
  await expect.poll(() => row(/^Run 1/).count()).toBe(2);
  await shot(page, "waterfall");
  await axe(page);
  // The arrows move between the rows.
  await table.getByRole("link", { name: "Run 1" }).first().focus();
  await page.keyboard.press("ArrowDown");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toContain("Waits for 2");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await page.locator(".log-event[data-target] .tag", { hasText: "run" }).waitFor();
  await tab(page, "Timeline");
  await table.getByRole("link", { name: "second" }).first().click();
  await page.waitForURL((url) => !url.pathname.includes(id));
  await tab(page, "Timeline");
  await page.locator(".callers").getByRole("link").first().click();
  await page.waitForURL((url) => url.pathname.includes(id));
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("no longer needed");
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the task" }).click();
  await page.locator(".page-head").getByText("Canceled").waitFor();
});

test("an error is shown once, and a question keeps its schema closed", async () => {
  const reason =
    "Traceback (most recent call last):\n  File count.py, line 3\n  in count\n  in main\nZeroDivisionError: division by zero";
  const id = await send([{ text: `fail:${reason}` }]);
  const page = await h.open(`/tasks/${id}`);
  const banner = page.locator(".task-banner", { hasText: "Failed in run 1" });
  await banner.getByText("Traceback (most recent call last): … ZeroDivisionError: division by zero").click();
  expect(await banner.locator("pre").innerText()).toBe(reason);
  await page.getByText("with the error above").waitFor();
  await tab(page, "Timeline");
  await page.getByText("· the error above").waitFor();
  expect(await page.getByText("ZeroDivisionError").count()).toBe(2); // the two forms of the banner
  // The title has the agent and the first words, the facts have the id.
  await page.getByRole("heading", { level: 1, name: /demo · “fail:Traceback/ }).waitFor();
});

test("a long message is folded, and each text has its own direction", async () => {
  const id = await send([{ text: `echo:${"مرحبا\n\n".repeat(100)}` }]);
  const page = await h.open(`/tasks/${id}`);
  const bubble = page.locator(".bubble-user");
  await bubble.getByRole("button", { name: "Show all" }).waitFor();
  const height = () => bubble.evaluate((e) => e.getBoundingClientRect().height);
  const folded = await height();
  const answer = page.locator('.artifact .parts [dir="auto"]', { hasText: "مرحبا" }).first();
  expect(await answer.evaluate((e) => getComputedStyle(e).direction)).toBe("rtl");
  await bubble.getByRole("button", { name: "Show all" }).click();
  expect(await height()).toBeGreaterThan(folded);
  await bubble.getByRole("button", { name: "Show less" }).click();
  expect(await height()).toBe(folded);
});

test("a stream is replayed, and a task is compared with its retry", async () => {
  const id = await send([{ text: "chunks=30 size=20 delay=20ms" }]);
  const page = await h.open(`/tasks/${id}`);
  await page.getByText("in 30 chunks").waitFor();
  await page
    .locator(".task-fact", { hasText: "First chunk" })
    .getByText(/^after \d/)
    .waitFor();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await more(page, "Copy as curl");
  await page.getByText("Copied as curl").waitFor();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const { stdout } = await promisify(execFile)("sh", ["-c", command]);
  expect(JSON.parse(stdout)).toMatchObject({ id, status: { state: "TASK_STATE_COMPLETED" } });
  await more(page, "Replay");
  const replay = page.getByRole("region", { name: "Replay" });
  await replay.getByRole("button", { name: "Play again" }).waitFor();
  await page.getByText("in 30 chunks").waitFor();
  // At the beginning nothing was written yet.
  await replay.getByRole("slider").focus();
  await page.keyboard.press("Home");
  await page.locator(".artifact").waitFor({ state: "detached" });
  await replay.getByRole("button", { name: "Play", exact: true }).waitFor();
  await axe(page);
  await shot(page, "replay");
  await replay.getByRole("button", { name: "Close the replay" }).click();
  await page.getByText("in 30 chunks").waitFor();

  const other = await send([{ text: "chunks=31 size=20 delay=1ms" }]);
  await more(page, "Compare");
  await page.getByText("Both say the same").waitFor(); // it has one run
  await page.getByLabel("or with the task").fill(other);
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.locator("del", { hasText: "chunks=30" }).waitFor();
  await page.locator("ins", { hasText: "chunks=31" }).waitFor();
  await axe(page);
  await shot(page, "compare");
});

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** pdf is the smallest file with a page. Its script must do nothing. */
const pdf = Buffer.from(
  "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(app.alert(9))>>>>endobj\n" +
    "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 60]/Contents 4 0 R/Resources<<>>>>endobj\n" +
    "4 0 obj<</Length 24>>stream\n1 0 0 rg 20 20 60 20 re f\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n",
).toString("base64");

test("artifacts of every kind are shown, and nothing is fetched from elsewhere", async () => {
  const requests: string[] = [];
  const id = await send([
    {
      text: "# Report\n\n| city | nights |\n|---|---|\n| Oslo | 2 |\n\nSee [the site](https://example.com/a) and ![map](https://tracker.example.com/x.png)",
    },
    { raw: png, filename: "dot.png", mediaType: "image/png" },
    { raw: pdf, filename: "plan.pdf", mediaType: "application/pdf" },
    { text: 'a,b\n1,"x, y"\n2,z\n', mediaType: "text/csv" },
    { text: "const a = 1;\n", mediaType: "text/javascript", filename: "a.js" },
    {
      data: [
        { city: "Oslo", price: 12 },
        { city: "Bergen", price: 8 },
      ],
    },
    { data: { big: 1, nested: { a: [1, 2, { b: null }] } } },
    { url: "https://files.example.com/a.bin", filename: "a.bin" },
    { url: "https://files.example.com/cat.png", mediaType: "image/png", filename: "cat.png" },
    { raw: Buffer.from("RIFF").toString("base64"), filename: "a.wav", mediaType: "audio/wav" },
  ]);
  const page = await h.open("/tasks");
  page.on("request", (r) => requests.push(r.url()));
  await page.goto(`${h.replicas[0]?.admin}/console/tasks/${id}?tab=artifacts`);
  const panel = page.getByRole("tabpanel");
  await panel.getByRole("cell", { name: "x, y" }).waitFor();
  await panel.getByRole("cell", { name: "Bergen" }).waitFor();
  await panel.getByRole("cell", { name: "Oslo" }).first().waitFor();
  await expect
    .poll(() => panel.locator("img").evaluate((i) => (i as HTMLImageElement).complete && (i as HTMLImageElement).naturalWidth))
    .toBe(1);
  await panel.getByRole("button", { name: "view" }).click();
  await expect
    .poll(() =>
      panel.locator("canvas").evaluate((c) => {
        const canvas = c as HTMLCanvasElement;
        const middle = canvas.getContext("2d")?.getImageData(canvas.width * 0.25, canvas.height * 0.5, 1, 1).data;
        return middle ? [...middle] : [];
      }),
    )
    .toEqual([255, 0, 0, 255]);
  await shot(page, "artifacts");
  await axe(page);
  const site = panel.getByRole("link", { name: "the site" });
  expect(await site.getAttribute("rel")).toContain("noopener noreferrer");
  expect(await site.innerText()).toContain("example.com");
  await panel.getByText("Image not loaded: map").waitFor();
  await panel.getByText("Image not loaded: cat.png").waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    panel.getByRole("link", { name: "download" }).first().click(),
  ]);
  expect(download.suggestedFilename()).toBe("dot.png");
  const own = new URL(h.replicas[0]?.admin ?? "").host;
  expect(requests.filter((r) => !r.startsWith("blob:") && new URL(r).host !== own)).toEqual([]);
});

test("hostile input in every field is only text", async () => {
  const nested = `${"[".repeat(26)}1${"]".repeat(26)}`;
  const parts: unknown[] = hostile.flatMap((text) => [
    { text },
    { text, mediaType: "text/markdown" },
    { text, mediaType: text },
    { raw: png, filename: text, mediaType: "image/png" },
    { raw: Buffer.from(text).toString("base64"), filename: text, mediaType: "text/html" },
    {
      raw: Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>`).toString(
        "base64",
      ),
      filename: "x.svg",
      mediaType: "image/svg+xml",
    },
    { url: text, filename: text },
    { data: { [text]: text, deep: { [text]: [text] } } },
    { data: [{ [text]: text }, { [text]: text }] },
    { text: "x", metadata: { [text]: text } },
  ]);
  parts.push(
    { text: "> ".repeat(5000), mediaType: "text/markdown" },
    { text: "[".repeat(20_000), mediaType: "text/markdown" },
    { text: "a".repeat(300_000) },
    { data: JSON.parse(nested) },
    {
      text: "[a](javascript:alert(1)) [b](data:text/html,x) <a href='javascript:alert(2)'>c</a>\n\n<style>*{display:none}</style>\n\n<iframe src=//evil.example.com></iframe>",
      mediaType: "text/markdown",
    },
  );
  // The first part is the script of the demo agent: this one it echoes.
  const id = await send([{ text: "all of it" }, ...parts], {
    metadata: Object.fromEntries(hostile.map((t) => [t, t])),
    message: { metadata: Object.fromEntries(hostile.map((t) => [t, { [t]: t }])) },
  });
  const failed = await send([{ text: `fail:${hostile.join(" ")}` }]);
  const page = await h.open(`/tasks/${id}`);
  await page.getByText("all of it").first().waitFor();
  for (let i = 0; i < 4; i++) {
    await page.getByRole("button", { name: /more parts|^metadata$|show all/ }).evaluateAll((all) => {
      for (const one of all) if (one.ariaExpanded !== "true") (one as HTMLElement).click();
    });
    await page.waitForTimeout(200);
  }
  for (const name of ["Timeline", "Log", "Artifacts", "Webhooks", "Conversation"]) {
    await tab(page, name);
    if (name === "Log") {
      await page.locator(".log-open").first().click();
      await page.locator(".json").first().waitFor();
    }
    if (name === "Artifacts") await page.locator(".artifact .part").nth(20).waitFor();
  }
  // Nothing that the input wrote became an element, and nothing hides what it is.
  expect(await page.locator("main script, main iframe, main style, main svg[onload], main [onerror]").count()).toBe(0);
  expect(await page.locator('main a[href^="javascript:"], main a[href^="data:"]').count()).toBe(0);
  expect(await page.locator("main").innerText()).not.toContain("\u202e");
  expect(await page.locator("main").innerText()).toContain("⟨U+202E⟩txt.exe");
  await page.goto(`${h.replicas[0]?.admin}/console/tasks/${failed}`);
  await page.getByText("Failed in run 1").waitFor();
  await tab(page, "Timeline");
  await page.getByText("<script>alert(1)</script>").first().waitFor();
});

test("a stream grows while one watches, and follows until the reader scrolls up", async () => {
  const id = await send([{ text: "chunks=4000 size=60 delay=20ms" }], { now: true });
  const page = await h.open(`/tasks/${id}?tab=log`);
  await page.getByText("live", { exact: true }).waitFor();
  const scroller = page.getByRole("region", { name: "Log" });
  await expect.poll(() => scroller.evaluate((e) => e.scrollTop)).toBeGreaterThan(600);
  await shot(page, "live");
  await scroller.hover();
  await page.mouse.wheel(0, -400);
  await page.getByRole("button", { name: "↓ Follow" }).waitFor();
  const top = () => scroller.evaluate((e) => e.scrollTop);
  let at = await top();
  for (let i = 0, same = 0; i < 100 && same < 3; i++) {
    await page.waitForTimeout(200); // the wheel is smooth
    const next = await top();
    same = next === at ? same + 1 : 0;
    at = next;
  }
  await page.waitForTimeout(500); // it must not move
  expect(await top()).toBe(at);
  await page.keyboard.press("f");
  await page.getByRole("button", { name: "Following" }).waitFor();
  await tab(page, "Artifacts");
  await page.getByText("grows", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("seen enough");
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the task" }).click();
  await page.locator(".page-head").getByText("Canceled").waitFor();
  await page.getByText("grows", { exact: true }).waitFor({ state: "detached" });
});

test("a link leads to an event, in the versions of its clients", async () => {
  const id = await send([{ text: "chunks=900 size=40" }]);
  const page = await h.open(`/tasks/${id}?seq=640`);
  await page.locator('#seq-640[data-target="true"] .json').waitFor();
  await shot(page, "permalink");
  await axe(page);
  await page.getByLabel("Show", { exact: false }).selectOption("0.3");
  await page.locator("#seq-640 .json").getByText('"artifact-update"').waitFor();
  await page.getByLabel("Show", { exact: false }).selectOption("1.0");
  await page.locator("#seq-640 .json").getByText('"artifactUpdate"').waitFor();
  await page.goto(`${h.replicas[0]?.admin}/console/tasks/${id}#seq-12`);
  await page.locator('#seq-12[data-target="true"]').waitFor();
  // The keyboard: j and k move, e opens.
  await page.keyboard.press("j");
  await page.keyboard.press("e");
  await page.locator("#seq-13 .log-body").waitFor();
  await page.keyboard.press("e");
  await page.locator("#seq-13 .log-body").waitFor({ state: "detached" });
  await page.keyboard.press("1");
  await page.getByRole("tab", { name: "Conversation", selected: true }).waitFor();
});

test("a log of 100,000 events scrolls smoothly in both directions", async () => {
  const id = await send([{ text: "chunks=100000 size=1" }], { now: true });
  await expect.poll(async () => (await h.api(`/tasks/${id}`)).state, { timeout: 120_000, interval: 1000 }).toBe("completed");
  const page = await h.open(`/tasks/${id}?tab=log`);
  await page.locator("#seq-1").waitFor();
  // Few rows at a time are what makes it smooth. The time of the thread is printed: it also tells of what else the machine does.
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  const worked = async () => {
    const { metrics } = await cdp.send("Performance.getMetrics");
    return 1000 * (metrics.find((m) => m.name === "TaskDuration")?.value ?? Number.NaN);
  };
  const before = await worked();
  const rows = await page.getByRole("region", { name: "Log" }).evaluate(async (e) => {
    const step = (by: number) =>
      new Promise<void>((resolve) =>
        requestAnimationFrame(() => {
          e.scrollTop += by;
          resolve();
        }),
      );
    for (let i = 0; i < 120; i++) await step(400);
    e.scrollTop = e.scrollHeight / 2;
    for (let i = 0; i < 120; i++) await step(-400);
    e.scrollTop = e.scrollHeight;
    for (let i = 0; i < 60; i++) await step(-4000);
    return document.querySelectorAll(".log-place").length;
  });
  const each = (await worked()) - before;
  console.log("100,000 events:", { rows, "thread ms of a step": each / 300 });
  expect(rows).toBeLessThan(150);
  await page.keyboard.press("End");
  await page.locator("#seq-100001, #seq-100002, #seq-100003").first().waitFor();
  await page.keyboard.press("Home");
  await page.locator("#seq-1").waitFor();
  await page.goto(`${h.replicas[0]?.admin}/console/tasks/${id}?seq=77777`);
  await page.locator("#seq-77777 .json").waitFor();
  // The conversation and the artifact do not need the log: neither waits for 100,000 chunks.
  await tab(page, "Conversation");
  await page.getByText("in 100,000 chunks").waitFor();
}, 240_000);

test("the page is accessible in both themes, and fits a small window and a phone", async () => {
  const long = await send([{ text: `ask:${"a very long question ".repeat(30)}` }]);
  for (const view of [{ theme: "light" }, { theme: "dark" }, { theme: "light", tablet: true }] as const) {
    const page = await h.open(`/tasks/${long}`, view);
    await page.locator(".bubble-question").waitFor();
    for (const name of ["Conversation", "Timeline", "Log", "Artifacts", "Webhooks"]) {
      await tab(page, name);
      await page.waitForTimeout(100);
      await axe(page);
      await shot(page, `${view.theme}-${name.toLowerCase()}`);
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name).toBe(true);
    }
  }
  const page = await h.open(`/tasks/${long}`, { phone: true, theme: "dark" });
  await page.locator(".bubble-question").waitFor();
  for (const name of ["Conversation", "Timeline", "Log", "Artifacts", "Webhooks"]) {
    await tab(page, name);
    await shot(page, `phone-${name.toLowerCase()}`);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await axe(page);
  }
});
