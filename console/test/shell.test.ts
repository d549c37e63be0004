import { afterAll, beforeAll, expect, test } from "vitest";
import { axe, type Harness, press, start } from "./harness";

let h: Harness;
beforeAll(async () => {
  h = await start();
});
afterAll(() => h.close());

test("the admin address leads to the console", async () => {
  const page = await h.open("/");
  const admin = h.replicas[0]?.admin ?? "";
  await page.goto(admin);
  await page.waitForURL(/\/console\/?$/);
  await page.getByRole("heading", { name: "Home", level: 1 }).waitFor();
  expect(await page.title()).toBe("Home · Holdfast");
});

test("every page has a link and keys, and is accessible in both themes and in a small window", async () => {
  for (const view of [{ theme: "light" }, { theme: "dark" }, { theme: "light", tablet: true }] as const) {
    const page = await h.open("/tasks", view);
    for (const name of ["Home", "Tasks", "Inbox", "Talk", "Agents", "Webhooks", "Jobs", "System", "Audit", "API keys"]) {
      await page.getByRole("navigation").getByRole("link", { name }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      await axe(page);
    }
    await press(page, ["g", "a"], /\/console\/agents$/);
  }
});

test("empty pages and errors lead to the documents, if the server has them", async () => {
  const page = await h.open("/inbox");
  await page.getByRole("heading", { name: "Nobody waits for an answer" }).waitFor();
  const guide = page.getByRole("link", { name: "How an agent asks" });
  const { documents } = await h.api("/me");
  expect(await guide.count()).toBe(documents ? 1 : 0);
  await page.route("**/admin/v1/me", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), documents: true } });
  });
  await page.reload();
  expect(await guide.getAttribute("href")).toBe("/docs/agents/questions.html");
  await page.route("**/admin/v1/inbox*", (route) =>
    route.fulfill({
      status: 403,
      contentType: "application/problem+json",
      body: JSON.stringify({ title: "Forbidden", status: 403, reason: "forbidden" }),
    }),
  );
  await page.reload();
  const error = page.getByRole("alert");
  expect(await error.getByRole("link").getAttribute("href")).toBe("/docs/operators.html#who-may");
  await page.goto(`${h.replicas[0]?.admin}/console/agents/nobody`);
  await page.getByText("There is no such agent").waitFor();
  expect(await page.getByRole("button", { name: "Try again" }).count()).toBe(0);
  await axe(page);
});
