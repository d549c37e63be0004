import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { visible } from "../src/lib/text";
import { axe, front, type Harness, hostile, keep, press, start } from "./harness";

describe("the page of tasks", () => {
  let h: Harness;
  beforeAll(async () => {
    h = await start({
      config:
        "agents:\n  - {name: demo, default: true, executor: {kind: demo}}\n  - {name: second, executor: {kind: demo}, limits: {concurrency: 2}}\n",
    });
  });
  afterAll(() => h.close());

  test("teaches how to make the first task, and shows it at once", async () => {
    const page = await h.open("/");
    const steps = page.getByRole("region", { name: "First steps" });
    await steps.getByRole("heading", { name: "Say hello" }).waitFor();
    await steps.getByRole("tab", { name: "HTTP" }).click();
    await steps.getByText("holdfast dev --agent hello --http 9000 -- python3 agent.py").waitFor();
    await steps.getByRole("tab", { name: "Python" }).click();
    await steps.getByText(`HOLDFAST_URL=${h.replicas[0]?.url.replace(/\/$/, "")} python3 hello.py`).waitFor();
    await axe(page);
    await steps.getByRole("link", { name: "open it in Talk" }).click();
    await page.getByRole("heading", { name: "Talk to demo" }).waitFor();
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toMatch(/^chunks=60 /);
    const small = await h.open("/tasks", { phone: true });
    await small.getByRole("heading", { name: "See it survive" }).waitFor();
    expect(await small.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    await axe(small);
    await page.goto(`${h.replicas[0]?.admin}/console/tasks`);
    await page.getByRole("heading", { name: "No tasks yet" }).waitFor();
    await page.getByRole("main").getByText("Live", { exact: true }).waitFor();
    await axe(page);
    await steps.getByRole("textbox", { name: "Message" }).fill("good morning");
    await steps.getByRole("button", { name: "Send", exact: true }).click();
    const row = page.getByRole("row", { name: "good morning" });
    await row.getByText("Completed").waitFor();
    expect(await steps.count()).toBe(0);
    // What was said is in Talk, and home has no first steps any more.
    await page.getByRole("navigation").getByRole("link", { name: "Talk" }).click();
    await page.getByRole("log").getByText("good morning").first().waitFor();
    await page.getByRole("navigation").getByRole("link", { name: "Home" }).click();
    await page.getByRole("img", { name: /^Tasks of the last 24 hours/ }).waitFor();
    expect(await steps.count()).toBe(0);
  });

  test("filters by text, by state and by address", async () => {
    const failed = await h.send("fail:no luck", { agent: "second" });
    const asked = await h.send("ask:Where to?");
    const page = await h.open("/tasks");
    await page.getByRole("link", { name: failed.id }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("state:fai");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/tasks?state=failed");
    await page.getByRole("link", { name: asked.id }).waitFor({ state: "detached" });
    await page.getByRole("link", { name: failed.id }).waitFor();
    // Agents are suggested by what they are called.
    await page.keyboard.type("agent:");
    await page.getByRole("option", { name: "agent:second" }).waitFor();
    await axe(page);
    await page.getByRole("option", { name: "agent:demo" }).click();
    await page.waitForURL("**/tasks?state=failed&agent=demo");
    await page.getByRole("heading", { name: "No task matches" }).waitFor();
    await page.getByRole("button", { name: "Any state" }).click();
    await page.getByRole("link", { name: asked.id }).waitFor();
    // A fault stays in the field, and says what to write.
    await page.keyboard.press("/");
    await page.keyboard.type("since:soon");
    await page.keyboard.press("Enter");
    await page.getByText("is no time").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("listbox", { name: "Suggestions" }).waitFor({ state: "hidden" });
    await page.getByRole("button", { name: /^Input required/ }).click();
    await page.waitForURL("**/tasks?state=input-required&agent=demo");
    await page.goBack();
    await page.waitForURL("**/tasks?agent=demo");
    // An id in the field finds the task by itself.
    await page.keyboard.press("/");
    await page.keyboard.type(failed.id);
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: failed.id }).waitFor();
    expect(await page.getByRole("row").count()).toBe(2);
  });

  test("takes what people type, and names what it does not know", async () => {
    const one = await h.send("fail:refund policy", { agent: "second" });
    const page = await h.open("/tasks");
    // A row has the client's words, the reason, and the end of the id.
    const row = page.getByRole("row", { name: one.id });
    await row.getByText("fail:refund policy").waitFor();
    await row.getByText("refund policy", { exact: true }).waitFor();
    await row.getByText(`…${one.id.slice(-8)}`).waitFor();
    const typed = async (text: string) => {
      await page.getByRole("combobox", { name: "Filter" }).fill(text);
      await page.keyboard.press("Enter");
    };
    await typed("colour:red");
    await page.getByText("“colour” is no key. The keys are state, agent").waitFor();
    await typed('state:failed,rejected agent:second -owner:bot duration:<1h -has:retry text:"REFUND"');
    await page.waitForURL((url) => url.searchParams.get("-owner") === "bot" && url.searchParams.get("duration") === "<1h");
    await row.locator("mark", { hasText: "refund" }).first().waitFor();
    expect(await page.getByRole("row").count()).toBe(2);
    await axe(page);
    // Without the text, a job can select the same tasks, and the counts show when they were created.
    await page.getByRole("button", { name: "Remove text REFUND" }).click();
    await page.keyboard.press("Escape"); // the suggestions cover the list
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByRole("region", { name: "Selection" }).getByRole("button", { name: "Retry" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Reason").fill("policy changed");
    await dialog.getByRole("button", { name: "Dry run" }).click();
    const found = (await h.api("/tasks?state=failed&agent=second&-owner=bot&max_duration=1h&retried=false")).tasks as unknown[];
    await dialog.getByText(new RegExp(`^Retry these? ${found.length} tasks?\\?$|^Retry this 1 task\\?$`)).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Clear the selection" }).click();
    const chart = page.getByRole("img", { name: /^When the tasks were created: .*failed/ });
    const box = await chart.boundingBox();
    if (!box) throw new Error("the histogram has no place");
    await page.mouse.move(box.x + box.width * 0.9, box.y + 10);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width - 1, box.y + 10);
    await page.mouse.up();
    await page.waitForURL((url) => url.searchParams.has("since") && url.searchParams.has("until"));
    await row.waitFor();
    // The reader chooses the columns, and the browser keeps them.
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByRole("menuitem", { name: "Show: Context" }).click();
    await page.getByRole("columnheader", { name: "Context" }).waitFor();
    await page.reload();
    await page.getByRole("columnheader", { name: "Context" }).waitFor();
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByRole("menuitem", { name: "Hide: Context" }).click();
  });

  test("turns the order by a click on the age, and only there", async () => {
    const context = "by-age";
    const ids: string[] = [];
    const send = async () => ids.push((await h.send("echo:aged", { context })).id);
    for (let n = 0; n < 3; n++) await send();
    const page = await h.open(`/tasks?context=${context}`);
    const grid = page.getByRole("grid", { name: "Tasks" });
    const rows = async (order: string[]) => {
      for (const [n, id] of order.entries())
        await grid
          .getByRole("row")
          .nth(n + 1)
          .getByRole("link", { name: id })
          .waitFor();
      expect(await grid.getByRole("row").count()).toBe(order.length + 1);
    };
    await rows(ids.toReversed());
    expect(await grid.getByRole("columnheader").getByRole("button").count()).toBe(1);
    const age = grid.getByRole("columnheader", { name: "Age", exact: true });
    expect(await age.getAttribute("aria-sort")).toBe("ascending");
    await age.getByRole("button").click();
    await page.waitForURL(`**/tasks?context=${context}&order=oldest`);
    await rows(ids);
    expect(await age.getAttribute("aria-sort")).toBe("descending");
    await axe(page);
    await send(); // the list is live, and the new one is the last
    await rows(ids);
    await age.getByRole("button").click();
    await rows(ids.toReversed());
  });

  test("goes through the tasks of a filter with j and k, and retries with r", async () => {
    const context = "triage";
    const sent = [];
    for (const n of [1, 2, 3]) sent.push(await h.send(`fail:seat ${n}`, { context }));
    const [first, second, third] = sent.map((t) => t.id) as [string, string, string];
    const page = await h.open(`/tasks?state=failed&context=${context}`);
    await page.getByRole("link", { name: third }).click();
    const trail = page.getByRole("navigation", { name: "Place in the list" });
    await trail.getByText("1 of 3").waitFor();
    await page.keyboard.press("j");
    await page.waitForURL(`**/tasks/${second}`);
    await trail.getByText("2 of 3").waitFor();
    await page.keyboard.press("j");
    await page.waitForURL(`**/tasks/${first}`);
    await trail.getByText("3 of 3").waitFor();
    expect(await trail.getByRole("button", { name: "Next task" }).isDisabled()).toBe(true);
    await page.keyboard.press("k");
    await page.waitForURL(`**/tasks/${second}`);
    await axe(page);
    await page.keyboard.press("r");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Reason").fill("seats again");
    await dialog.getByRole("button", { name: "Send again" }).click();
    await page.getByRole("link", { name: "Open the new task" }).waitFor();
    // The palette has the actions of the page, the agents and the tasks of the list.
    await page.keyboard.press("Control+k");
    await page.getByRole("option", { name: "Back to the list" }).waitFor();
    await page.keyboard.type("seat 3");
    await page.getByRole("option", { name: /^fail:seat 3/ }).click();
    await page.waitForURL(`**/tasks/${third}`);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("second");
    await page.getByRole("option", { name: "second: its tasks" }).waitFor();
    await axe(page);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
    await page.waitForURL(`**/tasks?state=failed&context=${context}`);
    await page.getByRole("row", { name: second }).getByText("Retried").waitFor();
  });

  test("home says what needs attention, and each number leads to its tasks", async () => {
    await h.send("echo:hello");
    for (const theme of ["light", "dark"] as const) {
      const page = await h.open("/", { theme });
      await page
        .getByRole("status")
        .getByText(/need(s)? attention|All is well|something changed/)
        .waitFor();
      await page.getByRole("img", { name: /^Tasks of the last 24 hours: .*completed/ }).waitFor();
      await axe(page);
    }
    const page = await h.open("/", { phone: true });
    await page.getByRole("link", { name: /^Wait for people/ }).tap();
    await page.waitForURL("**/tasks?state=input-required&state=auth-required");
    await page.goBack();
    await axe(page);
  });

  test("has grey rows, and says that it loads, until the first tasks are here", async () => {
    await h.send("echo:slow");
    const page = await h.open("/agents");
    let go = () => {};
    const answered = new Promise<void>((resolve) => {
      go = resolve;
    });
    await page.route("**/admin/v1/tasks?*", (route) => answered.then(() => route.continue()));
    await page.getByRole("link", { name: "Tasks", exact: true }).click();
    await page.locator(".tasks-list").getByRole("status").getByText("Loading…").waitFor({ state: "attached" });
    expect(await page.locator(".table-skeleton").count()).toBeGreaterThan(5);
    await axe(page);
    go();
    await page.locator(".table-skeleton").first().waitFor({ state: "detached" });
    expect(await page.locator(".tasks-list").getByRole("status").textContent()).toBe("");
  });

  test("searches in messages, and says how far back", async () => {
    const found = await h.send("fail:no such host", { agent: "second" });
    const other = await h.send("fail:another reason", { agent: "second" });
    const page = await h.open("/tasks?agent=second");
    await page.getByRole("link", { name: other.id }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type('text:"NO such host"');
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: other.id }).waitFor({ state: "detached" });
    await page.getByRole("link", { name: found.id }).waitFor();
    expect(new URL(page.url()).searchParams.get("text")).toBe("NO such host");
    // No job can select by text, so nothing offers to act on all.
    expect(await page.getByRole("checkbox", { name: "Select all that match" }).count()).toBe(0);
    await axe(page);
    // A server that searched a part only says so, and goes on when it is asked to.
    let pages = 0;
    await page.route("**/admin/v1/tasks?*", async (route) => {
      const response = await route.fetch();
      const answer = await response.json();
      if (pages++ === 0) Object.assign(answer, { tasks: [], next: other.id, searched_since: "2026-01-02T03:04:05Z" });
      await route.fulfill({ response, json: answer });
    });
    await page.goto(`${h.replicas[0]?.admin}/console/tasks?agent=second&text=such`);
    await page.getByRole("heading", { name: "No message says this so far" }).waitFor();
    await axe(page);
    expect(pages).toBe(1);
    await page.getByRole("button", { name: "Search further back" }).click();
    await page.getByRole("link", { name: found.id }).waitFor();
    expect(pages).toBe(2);
  });

  test("counts tasks by agent, and a click chooses one", async () => {
    const page = await h.open("/tasks");
    const agents = page.getByRole("group", { name: "Agents" });
    await agents.getByRole("button", { name: /^second/ }).click();
    await page.waitForURL("**/tasks?agent=second");
    await page
      .getByRole("textbox", { name: "Filter" })
      .or(page.getByRole("combobox", { name: "Filter" }))
      .fill("metadata.ticket:none tokens:>10k");
    await page.keyboard.press("Enter");
    await page.waitForURL("**metadata=ticket:none");
    await page.getByRole("heading", { name: "No task matches" }).waitFor();
    await axe(page);
  });

  test("saves a view, and leads back to it", async () => {
    const page = await h.open("/tasks?agent=second&since=7d");
    await page.getByRole("button", { name: "Save view" }).click();
    await page.getByLabel("Name").fill("<b>Mine</b>");
    await page.keyboard.press("Enter");
    const views = page.getByRole("navigation", { name: "Views" });
    await views.getByRole("link", { name: "All" }).click();
    await page.evaluate(() => localStorage.clear());
    await page.reload();
    await views.getByRole("link", { name: "<b>Mine</b>" }).click();
    await page.waitForURL("**/tasks?agent=second&since=7d");
    await views.getByRole("button", { name: /Delete the view/ }).click();
    await views.getByText("<b>Mine</b>").waitFor({ state: "detached" });
  });

  test("does not move rows under the pointer, and changes them in place", async () => {
    const page = await h.open("/tasks");
    const running = await h.send("sleep=60s", { now: true });
    const row = page.getByRole("row", { name: running.id });
    await row.getByText("Working").waitFor();
    await row.hover();
    const place = await row.boundingBox();
    const later = await h.send("echo:later");
    await page.getByRole("button", { name: "1 new" }).waitFor();
    await h.api(`/tasks/${running.id}/cancel`, { reason: "test" });
    await row.getByText("Canceled").waitFor();
    expect(await row.boundingBox()).toEqual(place);
    expect(await page.getByRole("link", { name: later.id }).count()).toBe(0);
    await page.getByRole("button", { name: "1 new" }).click();
    await page.getByRole("link", { name: later.id }).waitFor();
    // When the pointer leaves, the list runs on by itself.
    await row.hover();
    const last = await h.send("echo:last");
    await page.getByRole("button", { name: "1 new" }).waitFor();
    await page.mouse.move(5, 5);
    await page.getByRole("link", { name: last.id }).waitFor();
  });

  test("shows hostile names as text", async () => {
    for (const text of hostile) await h.send(`echo:${text}`, { context: text, messageId: `m-${text}` });
    const page = await h.open("/tasks");
    // Characters that turn a text around show as their code.
    for (const text of hostile.map(visible))
      await page.getByRole("gridcell").getByText(`echo:${text}`, { exact: true }).first().waitFor();
    expect(await page.getByText("\u202E").count()).toBe(0);
    expect(await page.locator("[role=grid] img, [role=grid] script, [role=grid] iframe, [role=grid] svg").count()).toBe(0);
    for (const text of hostile) {
      await page.goto(
        `${h.replicas[0]?.admin}/console/tasks?context=${encodeURIComponent(text)}&agent=${encodeURIComponent(text)}`,
      );
      await page.getByRole("heading", { name: "No task matches" }).waitFor();
      await page.getByRole("button", { name: `Remove context ${visible(text)}` }).waitFor();
    }
  });

  test("acts on selected tasks with a reason, by keys", async () => {
    const [one, two] = [await h.send("ask:One?", { agent: "second" }), await h.send("ask:Two?", { agent: "second" })];
    const page = await h.open("/tasks?agent=second&state=input-required");
    await page.getByRole("link", { name: two.id }).waitFor();
    await page.mouse.move(5, 5);
    await page.keyboard.press("j");
    await page.keyboard.press("x");
    await page.keyboard.press("j");
    await page.keyboard.press("x");
    const bar = page.getByRole("region", { name: "Selection" });
    await bar.getByText("2 selected").waitFor();
    await axe(page);
    await bar.getByRole("button", { name: "Cancel" }).click();
    const dialog = page.getByRole("dialog", { name: "Cancel: 2 tasks" });
    await axe(page);
    await dialog.getByLabel("Reason").fill("not needed <i>");
    await page.keyboard.press("Enter");
    await page.getByText("2 tasks canceled").waitFor();
    for (const task of [one, two]) expect((await h.api(`/tasks/${task.id}`)).state).toBe("canceled");
    const audit = JSON.stringify(await h.api("/audit?limit=20"));
    expect(audit).toContain("not needed <i>");
  });

  test("acts on all that match as a job, after a dry run", async () => {
    const context = "bulk";
    for (let i = 0; i < 7; i++) await h.send("fail:again", { context });
    const page = await h.open(`/tasks?state=failed&context=${context}`);
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByRole("region", { name: "Selection" }).getByRole("button", { name: "Retry" }).click();
    const dialog = page.getByRole("dialog", { name: "Retry: all tasks that match" });
    await dialog.getByText("state failed · context bulk").waitFor();
    await dialog.getByLabel("Reason").fill("agent fixed");
    await dialog.getByRole("button", { name: "Dry run" }).click();
    await dialog.getByText("Retry these 7 tasks?").waitFor();
    await axe(page);
    const before = await h.api(`/tasks/counts?context=${context}`);
    expect(before.counts).toMatchObject({ failed: 7 });
    await keep(page, 6000); // the toast
    await dialog.getByRole("button", { name: "Retry 7 tasks" }).click();
    await page.waitForURL("**/console/jobs/*");
    // Keys work while a toast is shown.
    await page.getByText("The job has begun").waitFor();
    await press(page, ["g", "j"], /\/console\/jobs$/);
    await page.getByText("The job has begun").waitFor();
    await page.getByRole("row", { name: /Retry · dry run.*context bulk/ }).waitFor();
    await axe(page);
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.getByText("Done", { exact: true }).waitFor();
    await page.getByText("7 tasks handled").waitFor();
    await axe(page);
    const job = await h.api(page.url().replace(/.*\/console/, ""));
    expect(job).toMatchObject({ state: "done", done: 7, failed: 0, reason: "agent fixed", dry_run: false });
    // The filter of the job leads to its tasks.
    await page.getByRole("link", { name: "state failed · context bulk" }).click();
    await page.waitForURL("**/tasks?state=failed&context=bulk");
  });

  test("a purge asks for the number", async () => {
    await h.send("echo:gone", { context: "purge" });
    await h.send("echo:gone", { context: "purge" });
    const page = await h.open("/tasks?context=purge");
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByRole("button", { name: "More" }).click();
    await page.getByRole("menuitem", { name: "Purge" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Reason").fill("ticket 8");
    await dialog.getByRole("button", { name: "Dry run" }).click();
    const purge = dialog.getByRole("button", { name: "Purge 2 tasks" });
    await purge.waitFor();
    expect(await purge.isDisabled()).toBe(true);
    await dialog.getByLabel("Type 2 to purge them").fill("2");
    await purge.click();
    await page.getByText("2 tasks handled").waitFor();
    await page.getByText("Done", { exact: true }).waitFor();
    expect((await h.api("/tasks?context=purge")).tasks).toEqual([]);
  });

  test("the palette and the list of keys work without a pointer", async () => {
    const page = await h.open("/agents", { theme: "dark" });
    await page.getByRole("heading", { name: "Agents", level: 1 }).waitFor();
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Search" }).waitFor();
    await axe(page);
    await page.keyboard.type("failed");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/tasks?state=failed&state=rejected&since=24h");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("some-task");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/tasks/some-task");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await axe(page);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });

  test("the theme, the times and the zone are kept", async () => {
    const page = await h.open("/tasks");
    const settings = page.getByRole("button", { name: "Settings" });
    for (const name of ["Dark theme", "Absolute times", "UTC"]) {
      await settings.click();
      await page.getByRole("menuitem", { name }).click();
    }
    await page.reload();
    await settings.click();
    for (const name of ["✓ Dark theme", "✓ Absolute times", "✓ UTC"]) await page.getByRole("menuitem", { name }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("menu").waitFor({ state: "detached" });
    expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe("dark");
    const time = page.locator("time").first();
    await time.waitFor();
    expect(await time.textContent()).toMatch(/^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$/);
    expect(await time.getAttribute("title")).toMatch(/ UTC$/);
    await axe(page);
  });

  test("works on a phone", async () => {
    const task = await h.send("ask:Where to?");
    const page = await h.open("/tasks", { phone: true, theme: "dark" });
    await page.getByRole("link", { name: task.id }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    const sideways = () => page.locator(".table").evaluate((e) => e.scrollWidth - e.clientWidth);
    expect(await sideways()).toBe(0);
    // A link that has the focus shows its ring, and is no wider than its cell.
    await page.getByRole("link", { name: task.id }).focus();
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Tab");
    expect(await sideways()).toBe(0);
    await axe(page);
    await page.getByRole("button", { name: "Menu" }).tap();
    await axe(page);
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Jobs" }).tap();
    await page.waitForURL("**/jobs");
  });
});

test("a live list goes on at another replica when its own is killed, and a bar says that none answers", async () => {
  const h = await start({ replicas: 2 });
  const balancer = await front(h);
  try {
    const page = await h.open("/tasks", { replica: 1 });
    await page.goto(`${balancer.url}/console/tasks`);
    const asked = await h.send("ask:Where to?", { replica: 1 });
    await page.getByRole("row", { name: asked.id }).getByText("Input required").waitFor();
    // While no replica answers, the list stays, and says that it is cut. Tasks go on at the other replica.
    await h.replicas[0]?.kill();
    await page.getByText("Reconnecting").waitFor();
    await page.getByRole("link", { name: asked.id }).waitFor();
    await h.send("to Oslo", { replica: 1, task: asked.id });
    const missed = await h.send("echo:two", { replica: 1 });
    expect(await page.getByRole("link", { name: missed.id }).count()).toBe(0);
    // The other replica tells what was missed, and then what happens.
    balancer.point(1);
    await page.getByRole("main").getByText("Live", { exact: true }).waitFor();
    await page.getByRole("row", { name: asked.id }).getByText("Completed").waitFor();
    await page.getByRole("link", { name: missed.id }).waitFor();
    const last = await h.send("echo:three", { replica: 1 });
    await page.getByRole("link", { name: last.id }).waitFor();
    await h.replicas[1]?.kill();
    await page.getByRole("button", { name: /^Failed/ }).click();
    await page.getByText("No answer from the server since").waitFor();
    await axe(page);
  } finally {
    balancer.close();
    await h.close();
  }
});
