// The inbox: questions of agents, answered in place.
import { afterAll, beforeAll, expect, test } from "vitest";
import { axe, type Harness, hostile, start } from "./harness";
import { listen } from "./talk-agent";

let h: Harness;
let agent: { url: string; close: () => void };
beforeAll(async () => {
  agent = await listen();
  h = await start({
    config: `agents:
  - {name: demo, default: true, executor: {kind: demo}}
  - {name: forms, executor: {kind: http, http: {url: "${agent.url}"}}}
`,
  });
});
afterAll(async () => {
  await h.close();
  agent.close();
});

test("a question with a schema is a form, on a phone, too", async () => {
  const { id } = await h.send("form", { agent: "forms" });
  const page = await h.open("/inbox", { phone: true });
  const form = page.getByRole("form", { name: "Your trip" });
  await form.getByLabel("Name").fill("Ada");
  await form.getByLabel("Seats").fill("2");
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await axe(page);
  await form.getByRole("button", { name: "Send the answer" }).click();
  await page.getByRole("heading", { name: "Nobody waits for an answer" }).waitFor();
  const said = (await h.api(`/tasks/${id}/log?kind=message`)) as { events: { payload: { parts: { data?: object }[] } }[] };
  expect(said.events.at(-1)?.payload.parts).toEqual([
    { data: { name: "Ada", day: "2026-12-24", seats: 2, class: "e", bags: false } },
  ]);
});

test("a question is answered in place, and the next person learns that it has its answer", async () => {
  const { id } = await h.send(`ask:Which city? ${hostile[0]}`);
  const first = await h.open("/tasks", { keep: true });
  await first
    .getByRole("navigation")
    .getByRole("link", { name: /^Inbox\s*1$/ })
    .click();
  const question = first.locator("section", { hasText: "Which city?" }).last();
  await question.getByText("asks an anonymous client").waitFor();
  await axe(first);
  const second = await h.open("/inbox", { keep: true, theme: "dark" });
  await second.getByLabel("Answer demo in words").fill("Rome");
  await axe(second);

  // The live list would take the question away before the second person answers.
  await second.route("**/inbox?*", (route) => route.abort());
  await first.getByLabel("Answer demo in words").fill("Oslo");
  await first.getByRole("button", { name: "Answer" }).click();
  await first.getByRole("heading", { name: "Nobody waits for an answer" }).waitFor();
  await second.getByRole("button", { name: "Answer" }).click();
  await second.getByText("Somebody has answered already").waitFor();
  const said = JSON.stringify(await h.api(`/tasks/${id}/log`));
  expect(said).toContain("Oslo");
  expect(said).not.toContain("Rome");
});
