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

test("every page has a link and keys, and is accessible in both themes", async () => {
  for (const theme of ["light", "dark"] as const) {
    const page = await h.open("/tasks", { theme });
    for (const name of ["Home", "Tasks", "Inbox", "Talk", "Agents", "Webhooks", "Jobs", "System", "Audit", "API keys"]) {
      await page.getByRole("navigation").getByRole("link", { name }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
      await axe(page);
    }
    await press(page, ["g", "a"], /\/console\/agents$/);
  }
});
