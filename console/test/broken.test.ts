// The server goes away, comes back and is upgraded below an open page.
import { afterEach, expect, test } from "vitest";
import { axe, freePort, type Harness, start } from "./harness";

const running: Harness[] = [];
afterEach(async () => {
  for (const h of running.splice(0)) await h.close();
});

async function server() {
  const h = await start({ admin: `127.0.0.1:${await freePort()}` });
  running.push(h);
  const [replica] = h.replicas;
  if (!replica) throw new Error("no replica");
  return { h, replica };
}

const away = "No answer from the server since";

test("a page says that the server is away, and goes on when it is back", async () => {
  const { h, replica } = await server();
  const { id } = await h.send("echo:before");
  await h.send("ask:Which city?");
  const agents = await h.open("/agents", { keep: true });
  await agents.getByRole("link", { name: "demo" }).waitFor();
  // The page of a task that has ended asks for nothing by itself.
  const ended = await h.open(`/tasks/${id}`, { keep: true, theme: "dark" });
  await ended.getByText("before").first().waitFor();
  const inbox = await h.open("/inbox", { keep: true });
  await inbox.getByText("Which city?").waitFor();

  await replica.kill();
  for (const page of [agents, ended, inbox]) {
    await page.getByText(away).waitFor();
    await axe(page);
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(await page.locator("main").evaluate((main) => getComputedStyle(main).filter)).toBe("grayscale(1)");
  }
  // What the operator does meanwhile says what came of it.
  await inbox.getByLabel("Answer demo in words").fill("Oslo");
  await inbox.getByRole("button", { name: "Answer" }).click();
  await inbox.getByText("Nothing was changed, or its answer was lost.").waitFor();

  await replica.restart();
  for (const page of [agents, ended, inbox]) await page.getByText(away).waitFor({ state: "hidden" });
  await inbox.getByRole("button", { name: "Answer" }).click();
  await inbox.getByRole("heading", { name: "Nobody waits for an answer" }).waitFor();
  await h.send("echo:after");
  await agents.getByRole("img", { name: /Tasks of demo that failed: 0 of 3/ }).waitFor();
});

test("a page that was not loaded yet comes when the server is back", async () => {
  const { h, replica } = await server();
  const page = await h.open("/tasks");
  await page.getByRole("heading", { name: "Tasks", level: 1 }).waitFor();
  await replica.kill();
  await page.getByRole("navigation").getByRole("link", { name: "Webhooks" }).click();
  await page.getByRole("heading", { name: "This page is missing" }).waitFor();
  await page.getByText(away).waitFor();
  await axe(page);
  await replica.restart();
  await page.getByRole("heading", { name: "Webhooks", level: 1 }).waitFor();
});

test("an upgrade replaces the files of an open page", async () => {
  const { h, replica } = await server();
  const page = await h.open("/tasks");
  await page.getByRole("heading", { name: "Tasks", level: 1 }).waitFor();
  const main = () => page.evaluate(() => document.querySelector<HTMLScriptElement>('script[type="module"]')?.src);
  const before = await main();
  await replica.kill();
  await replica.restart(true);
  await page.getByRole("navigation").getByRole("link", { name: "System" }).click();
  await page.getByRole("heading", { name: "System", level: 1 }).waitFor();
  expect(await main()).not.toBe(before);
});

test("the first file is missing for a moment, as behind a balancer during an upgrade", async () => {
  const { h } = await server();
  const page = await h.open("/robots.txt");
  let missed = 0;
  await page.route(/assets\/index-.*\.js/, (route) =>
    missed++ === 0 ? route.fulfill({ status: 404, body: "" }) : route.continue(),
  );
  await page.goto(`${h.replicas[0]?.admin}/console/system`);
  await page.getByText("A file of the page is missing. Trying again…").waitFor();
  await page.getByRole("heading", { name: "System", level: 1 }).waitFor();
});
