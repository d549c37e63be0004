import { createHash, timingSafeEqual, verify as fits } from "node:crypto";

// Returns the claims of a genuine delivery. After any exception, answer 401.
export async function verify(headers, body, token, want, keyOf) {
  const [given, known] = [headers["x-a2a-notification-token"], token].map((text) => Buffer.from(text));
  if (given.length !== known.length || !timingSafeEqual(given, known)) throw new Error("another token");
  const [head, payload, signature, ...more] = headers["x-a2a-signature"].split(".");
  const [header, claims] = [head, payload].map((part) => JSON.parse(Buffer.from(part, "base64url")));
  if (more.length || header.alg !== "ES256" || "crit" in header) throw new Error("not signed with ES256");
  const key = { key: await keyOf(header.kid), dsaEncoding: "ieee-p1363" };
  if (!fits("sha256", Buffer.from(`${head}.${payload}`), key, Buffer.from(signature, "base64url"))) throw new Error("forged");
  const hash = createHash("sha256").update(body).digest("hex");
  for (const [name, value] of Object.entries({ ...want, request_body_sha256: hash })) {
    if (claims[name] !== value) throw new Error(`another ${name}`);
  }
  const now = Date.now() / 1000;
  if (!(claims.iat - 60 <= now && now <= claims.exp + 60)) throw new Error("signed at another time");
  return claims;
}
