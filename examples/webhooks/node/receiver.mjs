// A receiver of webhooks that believes nobody. It checks that a notification comes from the server that it knows (a JWT
// over the body, with the server's published keys), is meant for this receiver, is about a task of the known owner and
// agent, is the one that it asked for (the token), and has not been seen before. With WEBHOOK_SECRET it checks the signature
// of Standard Webhooks instead of the JWT: the server derives that secret for itself, one owner and one agent, so no other
// deliveries are signed with it. `holdfast push secret` prints OWNER and WEBHOOK_SECRET.
//
//     ISSUER=https://agents.example.com OWNER=... AGENT=demo TOKEN=... node receiver.mjs 8000

import { createHash, createHmac, createPublicKey, timingSafeEqual, verify } from "node:crypto";
import { createServer } from "node:http";

const maxBody = 16 << 20;
const leeway = 60;
const life = 300; // of a signature, in seconds

class Refused extends Error {}

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
        this.fetching = this.fetch();
      }
      await this.fetching;
    }
    if (!this.keys.has(id)) throw new Refused("signed with a key that the server does not publish");
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
    Object.assign(this, { issuer, owner, agent, url, token, secret });
    this.keys = new KeySet(`${issuer}/.well-known/jwks.json`);
  }

  // verify gives the id of a genuine notification, or throws Refused.
  async verify(headers, body) {
    const given = headers["x-a2a-notification-token"];
    if (!given || !equal(given, this.token)) throw new Refused("the token is absent, or does not match");
    if (this.secret) return this.verifyStandard(headers, body);
    return this.verifyJWT(headers["x-a2a-signature"] ?? "", body);
  }

  async verifyJWT(compact, body) {
    const parts = compact.split(".");
    if (parts.length !== 3) throw new Refused("no JWT");
    const read = (part) => {
      try {
        return JSON.parse(Buffer.from(part, "base64url").toString());
      } catch {
        throw new Refused("no JWT");
      }
    }
    const header = read(parts[0]);
    // The algorithm is ours to choose and not the token's.
    if (header?.alg !== "ES256" || "crit" in header) throw new Refused("not signed with ES256");
    const key = await this.keys.find(header.kid);
    const signed = Buffer.from(`${parts[0]}.${parts[1]}`);
    const signature = Buffer.from(parts[2], "base64url");
    if (!verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature)) {
      throw new Refused("the signature does not fit");
    }
    const claims = read(parts[1]);
    if (claims.iss !== this.issuer) throw new Refused("signed by another server");
    if (claims.aud !== this.url) throw new Refused("meant for another receiver");
    // Another owner may have a task of the same name, and may have set a webhook to this URL.
    if (claims.owner !== this.owner) throw new Refused("a task of another owner");
    if (claims.agent !== this.agent) throw new Refused("a task of another agent");
    if (!(claims.iat - leeway <= now() && now() <= claims.exp + leeway)) throw new Refused("signed at another time");
    if (!equal(claims.request_body_sha256, createHash("sha256").update(body).digest("hex"))) {
      throw new Refused("the body differs from the signed one");
    }
    if (typeof claims.jti !== "string") throw new Refused("the JWT has no jti");
    return claims.jti;
  }

  // verifyStandard is what the libraries of standardwebhooks.com do.
  verifyStandard(headers, body) {
    const id = headers["webhook-id"];
    const at = headers["webhook-timestamp"] ?? "";
    if (!id || !/^\d+$/.test(at) || Math.abs(now() - Number(at)) > life) {
      throw new Refused("no id, or a timestamp more than 5 minutes off");
    }
    const expected = `v1,${createHmac('sha256', this.secret).update(`${id}.${at}.`).update(body).digest('base64')}`;
    const signatures = (headers["webhook-signature"] ?? "").split(" ");
    if (!signatures.some((signature) => equal(signature, expected))) throw new Refused("no signature matches");
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
    if (size > maxBody) throw new Refused("too long");
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
    if (error instanceof Refused) {
      console.log(`refused: ${error.message}`);
      return answer(401, "not for us");
    }
    // Such as when the keys could not be fetched: the server tries again.
    console.log(`put off: ${error.message}`);
    return answer(503, "later, please");
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
