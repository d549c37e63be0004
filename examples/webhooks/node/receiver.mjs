// A receiver of webhooks that believes nobody. verify.mjs checks that a notification comes from the server that it knows (a
// JWT over the body, with the server's published keys), is meant for this receiver, is about a task of the known owner and
// agent, and is the one that it asked for (the token). This program also checks that it has not been seen before. With
// WEBHOOK_SECRET it checks the signature of Standard Webhooks instead of the JWT: the server derives that secret for itself,
// one owner and one agent, so no other deliveries are signed with it. `holdfast webhooks secret` prints OWNER and WEBHOOK_SECRET.
//
//     ISSUER=https://agents.example.com OWNER=... AGENT=demo TOKEN=... node receiver.mjs 8000

import { createHmac, createPublicKey, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { verify } from "./verify.mjs";

const maxBody = 16 << 20;
const life = 300; // of a signature, in seconds

// Later says that the keys could not be fetched: the server tries again.
class Later extends Error {}

const now = () => Date.now() / 1000;

// equal compares without telling by its time how much of it fits.
function equal(a, b) {
  const [x, y] = [Buffer.from(String(a)), Buffer.from(String(b))];
  return x.length === y.length && timingSafeEqual(x, y);
}

// KeySet is the server's public keys. They are fetched from where the receiver knows that server, never from where a
// token says.
class KeySet {
  keys = new Map();
  fetched = -Infinity;

  constructor(url) {
    this.url = url;
  }

  async find(id) {
    // Keys change. An unknown one is worth a look, but not for every request that somebody invents.
    if (!this.keys.has(id)) {
      if (performance.now() - this.fetched > 10_000) {
        this.fetched = performance.now();
        this.fetching = this.fetch().catch((error) => {
          throw new Later(error.message);
        });
      }
      await this.fetching;
    }
    if (!this.keys.has(id)) throw new Error("signed with a key that the server does not publish");
    return this.keys.get(id);
  }

  async fetch() {
    const answer = await fetch(this.url, { redirect: "error", signal: AbortSignal.timeout(10_000) });
    if (!answer.ok) throw new Error(`the keys: ${answer.status}`);
    const { keys } = await answer.json();
    this.keys = new Map(
      keys
        .filter((key) => key.kty === "EC" && key.crv === "P-256")
        .map((key) => [key.kid, createPublicKey({ key, format: "jwk" })]),
    );
  }
}

class Verifier {
  seen = new Map(); // ids, and until when they must be remembered

  // issuer is the server's public URL; owner and agent are claims of our tasks; url is that of this receiver, exactly as it
  // was set; token as it was set, never empty; secret that of Standard Webhooks, derived for server, owner and agent, if any.
  constructor({ issuer, owner, agent, url, token, secret }) {
    // Another owner may have a task of the same name, and may have set a webhook to this URL.
    this.want = { iss: issuer, aud: url, owner, agent };
    Object.assign(this, { token, secret });
    this.keys = new KeySet(`${issuer}/.well-known/jwks.json`);
  }

  // verify gives the id of a genuine notification, or throws.
  async verify(headers, body) {
    if (this.secret) return this.verifyStandard(headers, body);
    const { jti } = await verify(headers, body, this.token, this.want, (kid) => this.keys.find(kid));
    if (typeof jti !== "string") throw new Error("the JWT has no jti");
    return jti;
  }

  // verifyStandard is what the libraries of standardwebhooks.com do, and the token.
  verifyStandard(headers, body) {
    if (!equal(headers["x-a2a-notification-token"], this.token)) throw new Error("another token");
    const id = headers["webhook-id"];
    const at = headers["webhook-timestamp"] ?? "";
    if (!id || !/^\d+$/.test(at) || Math.abs(now() - Number(at)) > life) {
      throw new Error("no id, or a timestamp more than 5 minutes off");
    }
    const expected = `v1,${createHmac('sha256', this.secret).update(`${id}.${at}.`).update(body).digest('base64')}`;
    const signatures = (headers["webhook-signature"] ?? "").split(" ");
    if (!signatures.some((signature) => equal(signature, expected))) throw new Error("no signature matches");
    return id;
  }

  // first reports whether an id is new. A repetition is no attack: the server sends again what it could not record, under
  // the same id. A receiver with a database keeps ids there, with what it does about the notification in the same
  // transaction.
  first(id) {
    for (const [old, until] of this.seen) if (until < now()) this.seen.delete(old);
    const fresh = !this.seen.has(id);
    // Longer than a signature holds, because the server tries for days.
    this.seen.set(id, now() + 48 * 3600);
    return fresh;
  }
}

async function read(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > maxBody) throw new Error("too long");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

let verifier;

// required gives a variable. Without one of them the receiver would accept what it cannot verify.
function required(name) {
  if (!process.env[name]) {
    console.error(`${name} is not set`);
    process.exit(1);
  }
  return process.env[name];
}

const server = createServer(async (request, response) => {
  const answer = (status, text) => response.writeHead(status, { "Content-Type": "text/plain" }).end(text);
  try {
    if (request.method === "GET") {
      // The server may ask whether we want to be a receiver (push.validation_challenge).
      const nonce = new URL(request.url, "http://localhost").searchParams.get("validationToken");
      return answer(nonce ? 200 : 400, nonce ?? "");
    }
    const id = await verifier.verify(request.headers, await read(request));
    console.log(verifier.first(id) ? "accepted" : "repeated", id);
    response.writeHead(204).end();
  } catch (error) {
    if (error instanceof Later) {
      console.log(`put off: ${error.message}`);
      return answer(503, "later, please");
    }
    console.log(`refused: ${error.message}`);
    return answer(401, "not for us");
  }
});

server.listen(Number(process.argv[2] ?? 8000), "127.0.0.1", () => {
  const url = process.env.WEBHOOK_URL || `http://127.0.0.1:${server.address().port}/hook`;
  const secret = process.env.WEBHOOK_SECRET;
  verifier = new Verifier({
    issuer: required("ISSUER"),
    owner: secret ? "" : required("OWNER"),
    agent: secret ? "" : required("AGENT"),
    url,
    token: required("TOKEN"),
    secret: secret && Buffer.from(secret.replace(/^whsec_/, ""), "base64"),
  });
  console.log(`listening at ${url}`);
});
