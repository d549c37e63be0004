// Logins in a real browser, which decides by itself when to send which cookie.
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { axe, freePort, type Harness, start } from "./harness";

let h: Harness;
let issuer: Server;
let scope = "admin:act";
const folder = mkdtempSync(join(tmpdir(), "console-users-"));

beforeAll(async () => {
  const admin = `127.0.0.1:${await freePort()}`;
  const users = join(folder, "users");
  // The password is "sesame".
  writeFileSync(users, "hopper:$2a$10$abcdefghijklmnopqrstuuYoA/Ig5dOcHJ1Uzls.zCgSC7r9v4W76::admin:act\n");
  issuer = createServer(issue);
  await new Promise<void>((resolve) => issuer.listen(0, "127.0.0.1", resolve));
  h = await start({
    admin,
    config: `
agents:
  - {name: demo, executor: {kind: demo}, auth: {schemes: []}}
auth:
  schemes:
    - {name: keys, kind: api_key}
    - {name: users, kind: basic, basic: {users_file: "${users}"}}
    - {name: sso, kind: jwt, jwt: {issuer: "${issuerURL()}", audience: [agents]}}
admin:
  schemes: [keys, users, sso]
  public_url: http://${admin}
  login: {scheme: sso, client_id: console, scopes: [openid]}
`,
  });
});
afterAll(async () => {
  issuer.closeAllConnections();
  issuer.close();
  await h.close();
  rmSync(folder, { recursive: true });
});

test("an operator logs in at the issuer, comes back to the page, and logs out", async () => {
  const page = await h.open("/jobs?x=1");
  await page.getByRole("heading", { name: "Log in", level: 1 }).waitFor();
  await axe(page);
  await page.getByRole("link", { name: /Log in with localhost/ }).click();
  // The issuer is another site than the console, so this is what SameSite cookies are for.
  await page.getByRole("heading", { name: "Jobs", level: 1 }).waitFor();
  expect(new URL(page.url()).pathname + new URL(page.url()).search).toBe("/console/jobs?x=1");
  const cookies = await page.context().cookies();
  expect(cookies.map((c) => [c.name, c.httpOnly, c.sameSite])).toEqual([["holdfast_session", true, "Strict"]]);
  expect(
    await page.evaluate(() => document.cookie + Object.keys(localStorage).join() + Object.keys(sessionStorage).join()),
  ).not.toMatch(/session|hfk_|eyJ/);

  // A link from another site opens the page with the session: the page asks by itself.
  await page.goto(`${issuerURL()}/elsewhere?to=${encodeURIComponent(`${h.replicas[0]?.admin}/console/jobs`)}`);
  await page.getByRole("link").click();
  await page.getByRole("button", { name: "ada" }).click();
  await axe(page);
  expect(await page.getByRole("dialog").textContent()).toContain("may view and act");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in", level: 1 }).waitFor();
  expect(await page.context().cookies()).toEqual([]);
});

test("a page of another site cannot act with the session", async () => {
  const sent = await h.send("ask:x");
  const page = await h.open("/tasks");
  await page.getByRole("link", { name: /Log in with/ }).click();
  await page.getByRole("button", { name: "ada" }).waitFor();
  await page.goto(`${issuerURL()}/elsewhere?to=x`);
  await page.evaluate(
    async ([url]) => {
      await fetch(url ?? "", { method: "POST", mode: "no-cors", credentials: "include", body: '{"reason":"evil"}' }).catch(
        () => {},
      );
    },
    [`${h.replicas[0]?.admin}/admin/v1/tasks/${sent.id}/cancel`],
  );
  const key = await h.operate("api-keys", "create", "--subject", "root", "--scope", "admin:view");
  const task = await fetch(`${h.replicas[0]?.admin}/admin/v1/tasks/${sent.id}`, {
    headers: { Authorization: `Bearer ${key}` },
  });
  expect(((await task.json()) as { state: string }).state).toBe("input-required");
});

test("a person without a scope learns that", async () => {
  scope = "weather:use";
  const page = await h.open("/tasks");
  await page.getByRole("link", { name: /Log in with/ }).click();
  await page.getByRole("heading", { name: "You are no operator" }).waitFor();
  await axe(page);
  scope = "admin:act";
  await page.getByRole("link", { name: "Log in again" }).click();
  await page.getByRole("button", { name: "ada" }).waitFor();
});

test("an API key opens a session, which ends with it while the page is open", async () => {
  const key = await h.operate("api-keys", "create", "--subject", "grace", "--scope", "admin:view");
  const page = await h.open("/agents");
  const form = page.getByRole("form", { name: "API key" });
  await form.getByLabel("API key").fill("hfk_wrong");
  await form.getByRole("button", { name: "Log in" }).click();
  await page.getByText("The server does not accept this key.").waitFor();
  await axe(page);
  await form.getByLabel("API key").fill(key);
  await form.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "grace" }).waitFor();
  await page.getByRole("heading", { name: "Agents", level: 1 }).waitFor();
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toContain("hfk_");
  await h.operate("api-keys", "revoke", key.split("_")[1] ?? "");
  await page.getByText("Your session has ended. Log in to go on where you were.").waitFor();
  expect(await page.getByRole("navigation").count()).toBe(0);
  expect(new URL(page.url()).pathname).toBe("/console/agents");
});

test("a user logs in with a password, in a form of the page and in no dialog of the browser", async () => {
  const refused = await fetch(`${h.replicas[0]?.admin}/admin/v1/me`);
  expect(refused.headers.get("WWW-Authenticate")).not.toContain("Basic");
  const phone = await h.open("/agents", { phone: true });
  await phone.getByRole("heading", { name: "Log in", level: 1 }).waitFor();
  await axe(phone);
  expect(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  const page = await h.open("/agents", { theme: "dark" });
  expect(await page.getByRole("navigation").count()).toBe(0);
  const form = page.getByRole("form", { name: "Password" });
  await form.getByLabel("User").fill("hopper");
  await form.getByLabel("Password", { exact: true }).fill("wrong");
  await form.getByRole("button", { name: "Log in" }).click();
  await page.getByText("The server does not accept this user and password.").waitFor();
  await axe(page);
  await form.getByLabel("Password", { exact: true }).fill("sesame");
  await form.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "hopper" }).click();
  expect(await page.getByRole("dialog").textContent()).toContain("may view and act");
  // The command of the card works as it stands.
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("You have logged out.").waitFor();
  await page.getByText("How to make a key").click();
  const command = (await page.locator(".command pre").textContent())?.split(" ") ?? [];
  expect(await h.operate(...command.slice(1))).toMatch(/^hfk_/);
});

// An issuer with one user, who agrees at once. It checks PKCE, and uses each code once.
const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
const codes = new Map<string, URLSearchParams>();
const issuerURL = () => `http://localhost:${(issuer.address() as AddressInfo).port}`;
const base64 = (text: string) => Buffer.from(text).toString("base64url");

function token(claims: object): string {
  const now = Math.floor(Date.now() / 1000);
  const head = base64(JSON.stringify({ alg: "ES256", kid: "one" }));
  const body = base64(JSON.stringify({ iss: issuerURL(), sub: "ada", iat: now, exp: now + 600, ...claims }));
  const mac = sign("sha256", Buffer.from(`${head}.${body}`), { key: keys.privateKey, dsaEncoding: "ieee-p1363" });
  return `${head}.${body}.${mac.toString("base64url")}`;
}

async function issue(request: import("node:http").IncomingMessage, response: import("node:http").ServerResponse) {
  const url = new URL(request.url ?? "/", issuerURL());
  const json = (status: number, body: object) =>
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  if (url.pathname === "/.well-known/openid-configuration") {
    json(200, {
      issuer: issuerURL(),
      jwks_uri: `${issuerURL()}/keys`,
      authorization_endpoint: `${issuerURL()}/authorize`,
      token_endpoint: `${issuerURL()}/token`,
    });
  } else if (url.pathname === "/keys") {
    json(200, { keys: [{ ...keys.publicKey.export({ format: "jwk" }), kid: "one", alg: "ES256", use: "sig" }] });
  } else if (url.pathname === "/authorize" && url.searchParams.get("code_challenge_method") === "S256") {
    const code = randomBytes(16).toString("hex");
    codes.set(code, url.searchParams);
    const back = new URL(url.searchParams.get("redirect_uri") ?? "");
    back.search = new URLSearchParams({ code, state: url.searchParams.get("state") ?? "" }).toString();
    response.writeHead(302, { Location: back.toString() }).end();
  } else if (url.pathname === "/token") {
    let text = "";
    for await (const chunk of request) text += chunk;
    const form = new URLSearchParams(text);
    const asked = codes.get(form.get("code") ?? "");
    codes.delete(form.get("code") ?? "");
    const challenge = createHash("sha256")
      .update(form.get("code_verifier") ?? "")
      .digest("base64url");
    if (!asked || asked.get("code_challenge") !== challenge) return json(400, { error: "invalid_grant" });
    json(200, {
      token_type: "Bearer",
      access_token: token({ aud: "agents", scope }),
      id_token: token({ aud: "console", nonce: asked.get("nonce") }),
    });
  } else if (url.pathname === "/elsewhere") {
    const to = (url.searchParams.get("to") ?? "").replaceAll(/[<>"&]/g, "");
    response
      .writeHead(200, { "Content-Type": "text/html" })
      .end(`<!doctype html><title>Elsewhere</title><a href="${to}">to the console</a>`);
  } else {
    json(404, {});
  }
}
