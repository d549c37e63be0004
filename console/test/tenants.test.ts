// An operator of one tenant sees its tenant only, on the pages about agents, webhooks, the system, the audit log and keys.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { axe, type Harness, start } from "./harness";

const config = `
auth: {schemes: [{name: keys, kind: api_key}], visibility: tenant}
admin: {schemes: [keys], all_tenants_scope: admin:all}
agents:
  - {name: demo, default: true, executor: {kind: demo}}
`;

let h: Harness;
let own = "";
let viewer = "";

beforeAll(async () => {
  h = await start({ config });
  const key = (tenant: string, subject: string, ...scopes: string[]) =>
    h.operate("api-keys", "create", "--subject", subject, "--tenant", tenant, ...scopes.flatMap((s) => ["--scope", s]));
  own = await key("a", "op", "admin:administer");
  viewer = await key("a", "viewer", "admin:view");
  for (const [tenant, text] of [
    ["a", "fail:reason of a"],
    ["b", "fail:secret of b"],
  ] as const) {
    const secret = await key(tenant, `client-of-${tenant}`);
    const response = await fetch(h.replicas[0]?.url ?? "", {
      method: "POST",
      headers: { "Content-Type": "application/json", "A2A-Version": "1.0", "X-API-Key": secret },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "SendMessage",
        params: { message: { messageId: tenant, role: "ROLE_USER", parts: [{ text }] } },
      }),
    });
    expect(await response.text()).toContain("TASK_STATE_FAILED");
  }
});
afterAll(() => h.close());

/** as opens a page with a credential, as a proxy or a login would add it. */
async function as(key: string, path: string): Promise<Page> {
  const page = await h.open("/robots.txt");
  await page.setExtraHTTPHeaders({ Authorization: `Bearer ${key}` });
  await page.goto(`${h.replicas[0]?.admin}/console${path}`);
  return page;
}

test("an operator of one tenant sees its own", async () => {
  const page = await as(own, "/agents");
  await page.getByRole("img", { name: "Tasks of demo that failed: 1 of 1" }).waitFor();
  expect(await page.getByText("waiting").count()).toBe(0);
  await page.goto(`${h.replicas[0]?.admin}/console/agents/demo?tab=failures`);
  await page.getByText("reason of a").waitFor();
  expect(await page.content()).not.toContain("secret of b");
  for (const path of ["/system", "/audit"]) {
    await page.goto(`${h.replicas[0]?.admin}/console${path}`);
    await page.getByRole("heading", { name: "This page shows the whole server" }).waitFor();
    await axe(page);
  }
  await page.goto(`${h.replicas[0]?.admin}/console/webhooks`);
  await page.getByRole("heading", { name: "No webhook fails" }).waitFor();
  await page.goto(`${h.replicas[0]?.admin}/console/keys`);
  await page.getByRole("gridcell", { name: "client-of-a (a)" }).waitFor();
  expect(await page.content()).not.toContain("client-of-b");

  await page.getByRole("button", { name: "Create a key" }).click();
  const dialog = page.getByRole("dialog");
  expect(await dialog.getByLabel("Tenant").count()).toBe(0);
  await dialog.getByLabel("Acts as").fill("robot");
  await dialog.getByLabel("Scopes").fill("admin:all");
  await dialog.getByLabel("Reason").fill("r");
  await dialog.getByRole("button", { name: "Create the key" }).click();
  await dialog.getByText("operators of one tenant may not give the scope admin:all").waitFor();
  await dialog.getByLabel("Scopes").fill("admin:view");
  await dialog.getByRole("button", { name: "Create the key" }).click();
  await page.getByTestId("secret").waitFor();
});

test("an operator who may only view gets no actions", async () => {
  const page = await as(viewer, "/keys");
  await page.getByRole("heading", { name: "Your credential may not read this" }).waitFor();
  await axe(page);
  expect(await page.getByRole("navigation").getByRole("link", { name: "API keys" }).count()).toBe(0);
});
