// The pictures of the documents: make console-screenshots writes them into docs/images.
import { mkdirSync, statSync } from "node:fs";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Harness, start, type View } from "./harness";
import { listen, type Run } from "./talk-agent";

const folder = new URL("../../docs/images/", import.meta.url).pathname;

const plan = `## Two days in Bergen

| day | morning | afternoon |
|---|---|---|
| Friday | Bryggen and the Hanseatic Museum | Fløibanen, walk down by Skansen |
| Saturday | Fish market, Bergenhus | Troldhaugen, concert at 13:00 |

- **Flight** DY 603, 07:40 from Oslo, seat 4A
- **Hotel** Zander K, two nights, breakfast included
`;

/** Why a check of a flight fails, by its city. */
const reasons: [string, string][] = [
  ["Stavanger", "airline.example: no such host"],
  ["Tromsø", "The hotel has no room 214 from Friday"],
  ["Bodø", "The model's answer is no JSON: unexpected end of input at 4096"],
  ["Trondheim", "The seat map of DY 744 needs a login"],
];

function* travel(run: Run): Generator<Record<string, unknown>> {
  const first = run.history?.find((m) => m.role === "user") ?? run.message;
  const asked = (first.parts ?? []).map((p) => p.text ?? "").join("");
  if (asked.startsWith("Check")) {
    yield { type: "status", message: "Asking the airline" };
    yield {
      type: "fail",
      message: reasons.find(([city]) => asked.includes(city))?.[1] ?? "The airline answered 503 for 30 s",
    };
    return;
  }
  if (run.turn === 1) {
    yield { type: "status", message: "Looking for flights and hotels" };
    yield { sleep: 300 };
    yield {
      type: "ask",
      message: "I found two flights on Friday: 07:40 (1,199 NOK) and 12:15 (899 NOK). Which one do you want?",
    };
    return;
  }
  yield { type: "status", message: "Booking the flight and the hotel" };
  yield { sleep: 300 };
  yield {
    type: "artifact",
    artifact: { artifactId: "plan", name: "plan.md", parts: [{ text: plan, mediaType: "text/markdown" }] },
  };
  yield { type: "complete", message: "Booked. The plan is below; I have sent the tickets to your mail." };
}

let h: Harness;
let agent: { url: string; close: () => void };
let booked = "";

beforeAll(async () => {
  mkdirSync(folder, { recursive: true });
  agent = await listen(0, travel);
  h = await start({
    config: `agents:
  - {name: travel, default: true, executor: {kind: http, http: {url: "${agent.url}"}}}
  - {name: weather, executor: {kind: demo}}
  - {name: invoices, executor: {kind: demo}}
`,
  });
  for (let i = 0; i < 14; i++) {
    const context = `trip-${2041 + i}`;
    await h.send("echo:Rain until noon", { agent: "weather", context });
    if (i % 3 === 0) await h.send("Check the flight to Stavanger", { context });
    if (i % 4 === 1) await h.send("Check the flight to Bergen", { context });
    if (i % 3 === 1) await h.send(`Check the flight to ${["Tromsø", "Bodø"][i % 2]}`, { context });
    if (i % 7 === 3) await h.send("Check the flight to Trondheim", { context });
    if (i % 5 === 2) await h.send("ask:Which cost centre?", { agent: "invoices", context });
    else await h.send("echo:Invoice stored", { agent: "invoices", context });
  }
  await h.send("ask:Approve 12,400 NOK?", { agent: "invoices", context: "trip-2055" });
  await h.send("sleep=10m", { agent: "weather", context: "trip-2055", now: true });
  await h.send("sleep=10m", { agent: "invoices", context: "trip-2056", now: true });
  const trip = await h.send("Plan two days in Bergen for me, from Oslo on Friday.", { context: "trip-2057" });
  await h.send("The early one, please, with a seat at the window.", { context: "trip-2057", task: trip.id });
  booked = trip.id;
});
afterAll(async () => {
  await h.close();
  agent.close();
});

async function shot(page: Page, name: string): Promise<void> {
  if (process.env.SCREENSHOTS !== "all" && !shown.includes(name)) return;
  await page.mouse.move(2, 2);
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.waitForLoadState("networkidle", { timeout: 2000 }).catch(() => {}); // live streams never end
  await page.setViewportSize({ width: 1200, height: 680 });
  await page.waitForTimeout(300); // virtual rows and charts follow the size
  const path = `${folder}${name}.png`;
  await page.screenshot({ path, animations: "disabled", caret: "hide" });
  expect(statSync(path).size).toBeLessThan(150_000);
}

// SCREENSHOTS=all also draws those that no document shows.
const shown = ["tasks-light", "task-light", "agent-light", "talk-dark"];
const themes: View[] = [{ theme: "light" }, { theme: "dark" }];

for (const view of themes) {
  const as = view.theme;

  test(`the list of tasks, ${as}`, async () => {
    const page = await h.open("/tasks", view);
    await page.getByRole("link", { name: booked }).waitFor();
    await page.getByRole("button", { name: /^Failed [1-9]/ }).waitFor();
    await shot(page, `tasks-${as}`);
  });

  test(`a task, ${as}`, async () => {
    const page = await h.open(`/tasks/${booked}`, view);
    await page.getByText("Two days in Bergen", { exact: true }).waitFor();
    await shot(page, `task-${as}`);
  });

  test(`talk with the wire, ${as}`, async () => {
    const page = await h.open("/talk", view);
    await page.getByRole("textbox", { name: "Message" }).fill("Plan two days in Bergen for me, from Oslo on Friday.");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.locator(".taskbar .badge", { hasText: "Input required" }).waitFor();
    await page.getByRole("textbox", { name: /^(Message|Answer)$/ }).fill("The early one, please, with a seat at the window.");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.locator(".taskbar .badge", { hasText: "Completed" }).waitFor();
    await shot(page, `talk-${as}`);
  });

  test(`an agent, ${as}`, async () => {
    const page = await h.open("/agents/travel?window=1h&tab=failures", view);
    await page.getByText("no such host").waitFor();
    await shot(page, `agent-${as}`);
  });
}
