// Measures the list of tasks in Chromium, as bench/ wants it: node scripts/view.js http://127.0.0.1:9090
// It prints one line of JSON. The times of a view are from the navigation to the first row (or to "No tasks yet") that was drawn,
// in a browser that has nothing in its cache.
import { chromium } from "playwright-core";

const [admin, frames = "600"] = process.argv.slice(2);
if (!admin) throw new Error("usage: node scripts/view.js URL [frames]");
const views = 5;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

async function open() {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, deviceScaleFactor: 1 });
  const page = await context.newPage();
  await page.addInitScript(() => {
    const shown = () =>
      document.querySelector("[role=row][data-index]") ??
      [...document.querySelectorAll("h1, h2, h3")].find((h) => h.textContent === "No tasks yet");
    const observer = new MutationObserver(() => {
      if (!shown()) return;
      observer.disconnect();
      // The frame after the next one begins when this one is drawn.
      requestAnimationFrame(() => setTimeout(() => (window.viewed = performance.now())));
    });
    observer.observe(document, { childList: true, subtree: true });
  });
  await page.goto(`${admin}/console/tasks`);
  await page.waitForFunction(() => window.viewed !== undefined, undefined, { timeout: 60_000 });
  return { context, page, viewed: await page.evaluate(() => window.viewed) };
}

const times = [];
for (let n = 0; n < views; n++) {
  const { context, viewed } = await open();
  times.push(viewed);
  await context.close();
}
const result = { viewMs: median(times), worstViewMs: Math.max(...times) };

const { page } = await open();
if (await page.locator("[role=row][data-index]").count()) {
  const scrolled = await page.evaluate(async (frames) => {
    let element = document.querySelector("[role=row][data-index]");
    while (element && element.scrollHeight <= element.clientHeight + 1) element = element.parentElement;
    while (element && getComputedStyle(element).overflowY === "visible") element = element.parentElement;
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const took = [];
    let rows = 0;
    let empty = 0;
    let last = await frame();
    for (let n = 0; n < frames; n++) {
      element.scrollTop += 100;
      const now = await frame();
      took.push(now - last);
      last = now;
      const shown = document.querySelectorAll("[role=row][data-index]").length;
      rows = Math.max(rows, shown);
      if (shown < 20) empty++;
    }
    return { took, rows, empty, elements: document.getElementsByTagName("*").length, top: element.scrollTop };
  }, Number(frames));
  const sorted = [...scrolled.took].sort((a, b) => a - b);
  Object.assign(result, {
    frameMs: median(scrolled.took),
    p95FrameMs: sorted[Math.floor(sorted.length * 0.95)],
    worstFrameMs: sorted.at(-1),
    rows: scrolled.rows,
    emptyFrames: scrolled.empty,
    elements: scrolled.elements,
    scrolledRows: Math.round(scrolled.top / 34),
  });
}
await browser.close();
console.log(JSON.stringify(result));
