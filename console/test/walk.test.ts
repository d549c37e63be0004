// An operator finds the one task of 10,000 that failed, and mends it. She starts at the first address, and has no documents.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { start } from "./harness";

test("one of 10,000 tasks failed: an operator finds out why, retries it, and redelivers its webhook", async () => {
  let accepts = false;
  const delivered: string[] = [];
  const receiver = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    if (accepts) delivered.push(body);
    response.writeHead(accepts ? 200 : 503).end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const h = await start({
    config: `
push: {allow_private: true}
agents:
  - {name: demo, default: true, executor: {kind: demo}, limits: {concurrency: 200}}
`,
  });
  try {
    const echo = async (n: number) => {
      const lane = async () => {
        for (let i = 0; i < n / 50; i++) await h.send(`echo:order ${i}`);
      };
      await Promise.all(Array.from({ length: 50 }, lane));
    };
    await echo(5_000);
    const failed = await h.send("fail:no seat on flight 1138", {
      webhook: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`,
    });
    await echo(4_999);

    // The first address, and what stands out there.
    const page = await h.open("/");
    await page.getByRole("link", { name: /^Failed.*1 in the last hour/ }).click();
    await page.getByRole("link", { name: failed.id }).click();
    await page.getByText("Failed in run 1").waitFor();
    await page.getByText("no seat on flight 1138").first().waitFor();

    await page.getByRole("button", { name: "Retry" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("the flight has seats again");
    await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
    await page.getByRole("link", { name: "Open the new task" }).click();
    await page.waitForURL((url) => !url.pathname.includes(failed.id));
    await page.getByText("Failed in run 1").waitFor();
    await page.goBack();

    await page.getByText("A webhook of this task is not delivered").waitFor();
    await page.getByRole("button", { name: "See why" }).click();
    await page.getByRole("cell", { name: "503" }).first().waitFor();
    accepts = true;
    await page.getByRole("button", { name: "Redeliver" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("the receiver is back");
    await page.getByRole("dialog").getByRole("button", { name: "Redeliver" }).click();
    await expect.poll(() => delivered.some((one) => one.includes("no seat on flight 1138"))).toBe(true);

    // The record says who did what, and why.
    await page.goto(`${h.replicas[0]?.admin}/console/audit`);
    await page.getByText("the receiver is back").waitFor();
    await page.getByText("the flight has seats again").waitFor();
  } finally {
    receiver.close();
    await h.close();
  }
}, 300_000);
