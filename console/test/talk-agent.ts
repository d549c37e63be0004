// An agent for the tests of the Talk page: it asks with schemas, and says what a hostile agent would.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

interface Part {
  text?: string;
  raw?: string;
  filename?: string;
  mediaType?: string;
}

export interface Run {
  turn: number;
  message: { parts: Part[] };
  history?: { role: string; parts?: Part[] }[];
}

export const tripSchema = {
  type: "object",
  title: "Your trip",
  description: "What the airline needs.",
  properties: {
    name: { type: "string", title: "Name", minLength: 2, description: "As in the passport." },
    email: { type: "string", title: "Email", format: "email" },
    day: { type: "string", title: "Day", format: "date", default: "2026-12-24" },
    seats: { type: "integer", title: "Seats", minimum: 1, maximum: 9 },
    class: { type: "string", title: "Class", enum: ["e", "b"], enumNames: ["Economy", "Business"], default: "e" },
    bags: { type: "boolean", title: "With bags" },
  },
  required: ["name", "seats"],
};

/** Strings that would run, load or frame something in a page that does not take them for text. */
export const hostile = [
  "<script>window.pwned=1</script>",
  '<img src=x onerror="window.pwned=2">',
  "<svg/onload=window.pwned=3>",
  '<iframe src="javascript:parent.pwned=4"></iframe>',
  '[click](javascript:window.pwned=5) ![i](https://evil.example.com/a.png) <a href="javascript:window.pwned=6">x</a>',
  '<style>body{display:none}</style><link rel=stylesheet href="https://evil.example.com/a.css">',
  '<form action="https://evil.example.com"><button>Send</button></form>',
  "```html\n<script>window.pwned=7</script>\n```",
  "\u202egnp.exe \ufeff {{constructor.constructor('window.pwned=8')()}} #{window.pwned=9}",
];

const svg = `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=10"><script>window.pwned=11</script></svg>`;
/** One red pixel. */
export const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

const base64 = (s: string) => Buffer.from(s).toString("base64");

function* answer(run: Run): Generator<Record<string, unknown>> {
  const first = run.history?.find((m) => m.role === "user") ?? run.message;
  const script = (first.parts ?? []).map((p) => p.text ?? "").join("");
  const said = run.message.parts;
  if (run.turn === 1) {
    if (script === "form") {
      yield {
        type: "ask",
        message: { parts: [{ text: "I need a few facts to book." }, { data: { requestedSchema: tripSchema } }] },
      };
      return;
    }
    if (script === "later") {
      for (let i = 1; i <= 30; i++) {
        yield { type: "status", message: `step ${i}` };
        yield { sleep: 200 };
      }
      yield { type: "ask", message: "And now?" };
      return;
    }
    if (script === "approve") {
      const schema = {
        type: "object",
        properties: { approved: { type: "boolean", title: "Pay 199 € for DY 1303?" } },
        required: ["approved"],
      };
      yield { type: "ask", message: { parts: [{ text: "May I pay?" }, { data: schema }] } };
      return;
    }
    if (script === "options") {
      yield { type: "ask", message: { parts: [{ text: "Which one?" }, { data: { options: ["DY 1303", "SK 4035"] } }] } };
      return;
    }
    if (script === "hostile") {
      for (const [i, text] of hostile.entries()) {
        yield { type: "status", message: text };
        yield {
          type: "artifact",
          artifact: { artifactId: `a${i}`, name: text, description: text, parts: [{ text }, { data: { [text]: text } }] },
        };
      }
      yield {
        type: "artifact",
        artifact: {
          artifactId: "files",
          name: "files",
          parts: [
            { raw: png, filename: '"><script>window.pwned=12</script>.png', mediaType: "image/png" },
            { raw: base64(svg), filename: "a.svg", mediaType: "image/svg+xml" },
            { raw: base64("<script>window.pwned=13</script>"), filename: "a.html", mediaType: "text/html" },
            { url: "javascript:window.pwned=14", filename: "x", mediaType: "image/png" },
            { url: "https://evil.example.com/a.png", filename: "b.png", mediaType: "image/png" },
          ],
        },
      };
      const schema = {
        type: "object",
        title: hostile[0],
        properties: {
          a: { type: "string", title: hostile[1], description: hostile[2], enum: [hostile[3]], enumNames: [hostile[4]] },
          __proto__x: { type: "string" },
        },
      };
      yield { type: "ask", message: { parts: [{ text: hostile[0] }, { data: { requestedSchema: schema } }] } };
      return;
    }
    if (script === "files") {
      const got = said
        .filter((p) => p.raw !== undefined)
        .map((p) => `${p.filename} ${p.mediaType} ${Buffer.from(p.raw ?? "", "base64").length}`);
      yield { type: "artifact", artifact: { artifactId: "got", name: "got", parts: [{ text: got.join("\n") }] } };
      yield { type: "complete" };
      return;
    }
  }
  yield { type: "artifact", artifact: { artifactId: "answer", name: "answer", parts: [{ text: "I got:" }, ...said] } };
  yield { type: "complete" };
}

/** listen starts the agent, and returns its URL and what stops it. */
export function listen(
  port = 0,
  answers: (run: Run) => Iterable<Record<string, unknown>> = answer,
): Promise<{ url: string; close: () => void }> {
  const server = createServer((req, res) => {
    const pieces: Buffer[] = [];
    req.on("data", (piece) => pieces.push(piece));
    req.on("end", async () => {
      res.setHeader("Content-Type", "application/x-ndjson");
      for (const event of answers(JSON.parse(Buffer.concat(pieces).toString()))) {
        if (event.sleep) await new Promise((done) => setTimeout(done, Number(event.sleep)));
        else res.write(`${JSON.stringify(event)}\n`);
      }
      res.end();
    });
  });
  return new Promise((done) => {
    server.listen(port, "127.0.0.1", () =>
      done({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close: () => server.close() }),
    );
  });
}
