// The moving picture of the README: Talk while the server is killed and started again. make console-screenshots writes its
// frames into FRAMES, each named for its time in milliseconds, and tools/site/film makes one file of them.
import { mkdirSync, writeFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { test } from "vitest";
import { freePort, start } from "./harness";

const folder = process.env.FRAMES ?? "";

/** caption shows at the lower edge what happens beside the browser. */
async function caption(page: Page, text: string, color: string): Promise<void> {
  await page.evaluate(
    ([text, color]) => {
      const bar = document.getElementById("caption") ?? document.body.appendChild(document.createElement("div"));
      bar.id = "caption";
      bar.textContent = text ?? "";
      Object.assign(bar.style, {
        position: "fixed",
        inset: "auto 0 0 0",
        zIndex: "9999",
        padding: "9px 16px",
        font: "600 15px monospace",
        color: "#fff",
        background: color,
      });
    },
    [text, color],
  );
}

test("a stream survives kill -9", async () => {
  mkdirSync(folder, { recursive: true });
  const h = await start({
    admin: `127.0.0.1:${await freePort()}`,
    config: "worker: {lease_ttl: 5s}\nagents:\n  - {name: demo, default: true, executor: {kind: demo}}\n",
  });
  const page = await h.open("/talk", { theme: "light" });
  await page.setViewportSize({ width: 960, height: 560 });
  const server = h.replicas[0];
  const begin = Date.now();
  let filming = true;
  const film = (async () => {
    while (filming) {
      const at = String(Date.now() - begin).padStart(6, "0");
      writeFileSync(`${folder}/${at}.png`, await page.screenshot({ animations: "disabled", caret: "hide" }));
      await page.waitForTimeout(150);
    }
  })();
  await caption(page, "An agent streams 60 chunks", "#1f2430");
  await page.getByRole("textbox", { name: "Message" }).fill("chunks=60 size=40 delay=120ms");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByRole("log").locator(".artifact").first().waitFor();
  await page.waitForTimeout(2500);
  await caption(page, "$ kill -9 $(pidof holdfast)", "#b3261e");
  await server?.kill();
  await page.waitForTimeout(3000);
  await caption(page, "$ holdfast serve", "#1d5fd1");
  await server?.restart();
  await page.getByRole("log").getByText("Resumed").first().waitFor({ timeout: 60_000 });
  await caption(page, "Resumed: the run goes on from the log", "#1d5fd1");
  await page.getByRole("log").getByText("whole: every event came once").waitFor({ timeout: 60_000 });
  await caption(page, "Whole: every event came once", "#1a7f37");
  await page.waitForTimeout(1500);
  filming = false;
  await film;
  await h.close();
});
