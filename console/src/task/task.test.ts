import { expect, test } from "vitest";
import { parseJson } from "../api/json";
import type { Event } from "../api/schema";
import { csv, hostOf, line, size, visible } from "../lib/text";
import { apply, artifactOf, begun } from "./artifacts";
import { conversation, traceHref, traces } from "./conversation";
import { Feed, merged, mostKnown, mostOpen, mostOpenBytes, mostStory } from "./feed";
import { blockSize, mostBlocks, TaskLog } from "./log";
import { tableOf } from "./Parts";
import { spans, timeline } from "./timeline";

const at = (seq: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, seq)).toISOString();
const event = (seq: number, more: Partial<Event>): Event => ({ seq, kind: "status", at: at(seq), attempt: 1, ...more });
const chunk = (seq: number, text: string, more: Partial<Event> = {}): Event =>
  event(seq, { kind: "artifact", artifact_id: "a", append: true, payload: { parts: [{ text }] }, ...more });

test("chunks are folded as the server folds them", () => {
  let a = begun(chunk(2, "one", { append: undefined, payload: { name: "n", parts: [{ text: "one" }] } }));
  a = apply(a, chunk(3, " two"));
  a = apply(a, chunk(3, " two")); // again: nothing
  a = apply(a, chunk(4, " three", { last: true }));
  expect(a.parts).toEqual([expect.objectContaining({ kind: "text", text: "one two three", bytes: 13 })]);
  expect([a.seq, a.chunks, a.complete, a.name]).toEqual([4, 3, true, "n"]);
  // Another media type, a file name, metadata or two parts begin a part.
  a = apply(
    a,
    event(5, { kind: "artifact", artifact_id: "a", append: true, payload: { parts: [{ text: "x", media_type: "text/csv" }] } }),
  );
  a = apply(
    a,
    event(6, { kind: "artifact", artifact_id: "a", append: true, payload: { parts: [{ text: "y" }, { text: "z" }] } }),
  );
  a = apply(
    a,
    event(7, { kind: "artifact", artifact_id: "a", append: true, payload: { parts: [{ text: "m", metadata: {} }] } }),
  );
  expect(a.parts.map((p) => p.text)).toEqual(["one two three", "x", "y", "z", "m"]);
  // Without append it begins anew.
  a = apply(a, event(8, { kind: "artifact", artifact_id: "a", payload: { parts: [{ data: { b: 1 } }] } }));
  expect(a.parts).toEqual([expect.objectContaining({ kind: "data", data: { b: 1 } })]);
  expect(a.firstSeq).toBe(2);
});

test("a chunk after a cut text counts and is not shown", () => {
  const a = artifactOf({
    id: "a",
    first_seq: 1,
    base_seq: 1,
    seq: 9,
    chunks: 3,
    parts: [{ kind: "text", text: "begin", bytes: 1000, cut: true }],
  });
  expect(apply(a, chunk(10, "more")).parts).toEqual([expect.objectContaining({ text: "begin", bytes: 1004, cut: true })]);
});

test("hostile chunks do not break the fold", () => {
  for (const payload of [
    null,
    7,
    "x",
    [],
    { parts: 7 },
    { parts: [null, 7, { text: 7 }, { raw: {} }] },
    { name: {}, parts: [] },
  ]) {
    expect(() => apply(begun(chunk(1, "a")), chunk(2, "", { payload }))).not.toThrow();
    expect(() =>
      conversation(
        [event(1, { kind: "message", payload }), event(2, { payload, state: "failed" }), event(3, { kind: "run", payload })],
        [],
        true,
      ),
    ).not.toThrow();
  }
});

const story = [
  event(1, {
    kind: "message",
    attempt: 0,
    payload: {
      role: "user",
      parts: [{ text: "go" }],
      request: { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
    },
  }),
  event(2, { state: "working" }),
  event(3, { state: "working", payload: { message: { parts: [{ text: "step 1" }] } } }),
  event(7, { kind: "run", payload: { outcome: "retry", error: "boom" } }),
  event(8, { state: "input-required", payload: { message: { parts: [{ text: "which?" }] } } }),
  event(9, { kind: "message", attempt: 0, payload: { role: "user", parts: [{ text: "this" }] } }),
  event(10, { state: "submitted" }),
  event(11, { state: "working" }),
  event(12, { kind: "run", payload: { outcome: "calls", calls: [{ id: "c", agent: "second", task: "t2" }] } }),
  event(14, { state: "completed", payload: { message: { parts: [{ text: "done" }] } } }),
];

test("a conversation has turns, artifacts in place, and only the last of several silent states", () => {
  const items = conversation(
    story,
    [
      { id: "late", firstSeq: 13 },
      { id: "early", firstSeq: 5 },
    ],
    true,
  );
  expect(items.map((i) => `${i.type} ${i.seq}`)).toEqual([
    "turn 1",
    "message 1",
    "state 2",
    "message 3",
    "artifact 5",
    "note 7",
    "question 8",
    "turn 9",
    "message 9",
    "state 11",
    "calls 12",
    "artifact 13",
    "end 14",
  ]);
  expect(items.find((i) => i.type === "question")).toMatchObject({ open: false });
  expect(conversation(story.slice(0, 5), [], true).find((i) => i.type === "question")).toMatchObject({ open: true });
  // Of a part of the log, turns cannot be counted, and earlier artifacts are left out.
  const part = conversation(
    story.slice(4),
    [
      { id: "early", firstSeq: 5 },
      { id: "late", firstSeq: 13 },
    ],
    false,
  );
  expect(part.filter((i) => i.type === "turn")).toEqual([]);
  expect(part.filter((i) => i.type === "artifact").map((i) => i.seq)).toEqual([13]);
  expect(traces(story)).toEqual(["0af7651916cd43dd8448eb211c80319c"]);
});

test("a timeline has states, runs, calls and waits in order, and how long states lasted", () => {
  const waits = [
    event(1, { kind: "message" }),
    event(2, { state: "working" }),
    event(4, { kind: "run", payload: { outcome: "waits", until: at(9) } }),
    event(9, { state: "completed" }),
  ];
  const entries = timeline(
    waits,
    [{ run: 1, turn: 1, attempt: 1, outcome: "waits", started_at: at(2) }],
    [{ id: "c", task: "t", called_at: at(3) }],
  );
  expect(entries.map((e) => e.type)).toEqual(["state", "run", "call", "wait", "state"]);
  expect(entries[3]).toMatchObject({ until: at(9), over: at(9) });
  const bar = spans(at(1), waits, 0, true);
  expect(bar.map((s) => [s.state, s.to - s.from])).toEqual([
    ["submitted", 1000],
    ["working", 7000],
    ["completed", 0],
  ]);
  expect(spans(at(1), waits.slice(0, 2), Date.parse(at(5)), false).at(-1)).toMatchObject({
    state: "working",
    to: Date.parse(at(5)),
  });
});

test("a log loads the pages that are looked at, and takes an event of the stream once", async () => {
  const asked: [number, number][] = [];
  const log = new TaskLog(1000, async (after, limit) => {
    asked.push([after, limit]);
    // As the server does with large events: a page may be shorter than its limit.
    return Array.from({ length: Math.min(limit, 120) }, (_, i) => event(after + 1 + i, {}));
  });
  log.want(450, 470);
  await expect.poll(() => log.at(470)?.seq).toBe(470);
  await expect.poll(() => log.at(600)?.seq).toBe(600);
  expect(asked).toEqual([
    [400, blockSize],
    [520, 80],
  ]);
  expect(log.at(401)?.seq).toBe(401);
  expect(log.at(601)).toBeUndefined();
  expect(log.add(event(1001, {}))).toBe(true);
  expect(log.add(event(1001, {}))).toBe(false);
  expect(log.add(event(450, {}))).toBe(false);
  expect(log.lastSeq).toBe(1001);
  log.broke(1001);
  log.broke(1001);
  log.resumed();
  expect(log.add(event(1002, {}))).toBe(true);
  expect(log.cuts).toEqual([expect.objectContaining({ after: 1001, missed: 0 })]);
  // A gap after a cut is told, and not hidden by the connection that stands again.
  log.broke(1002);
  log.resumed();
  expect(log.cuts.at(-1)?.missed).toBeUndefined();
  log.add(event(1005, {}));
  expect(log.cuts.at(-1)).toMatchObject({ after: 1002, missed: 2 });
});

test("a page of a log that failed is asked for again only when the reader wants it", async () => {
  let tries = 0;
  const log = new TaskLog(10, async (after, limit) => {
    if (++tries === 1) throw new Error("away");
    return Array.from({ length: limit }, (_, i) => event(after + 1 + i, {}));
  });
  log.want(1, 10);
  await expect.poll(() => log.error).toBeInstanceOf(Error);
  log.want(1, 10);
  expect(tries).toBe(1);
  log.again();
  log.want(1, 10);
  await expect.poll(() => log.at(10)?.seq).toBe(10);
});

test("an artifact that is read late has the chunks of the stream, once", () => {
  const feed = new Feed(5, async () => []);
  feed.add(chunk(6, "b"));
  feed.add(event(7, { state: "working" }));
  feed.add(chunk(8, "c", { last: true }));
  expect(feed.artifact("a")).toBeUndefined();
  // The server's answer has event 6 already.
  expect(
    feed.take(
      artifactOf({ id: "a", first_seq: 3, base_seq: 3, seq: 6, chunks: 2, parts: [{ kind: "text", text: "ab", bytes: 2 }] }),
    ),
  ).toBe(true);
  expect(feed.artifact("a")?.parts[0]?.text).toBe("abc");
  feed.add(chunk(8, "c"));
  expect(feed.artifact("a")?.parts[0]?.text).toBe("abc");
  expect(feed.story.map((e) => e.seq)).toEqual([7]);
  expect(merged([{ id: "a", first_seq: 3, chunks: 2, seq: 6 }], feed.known)).toEqual([
    expect.objectContaining({ id: "a", firstSeq: 3, seq: 8, complete: true }),
  ]);
});

test("a page that is open for long keeps a bounded part of what the stream brings", () => {
  const feed = new Feed(0, async () => []);
  let seq = 0;
  for (let i = 0; i < 10_000; i++) feed.add(event(++seq, { state: "working" }));
  expect(feed.log.inMemory).toBeLessThanOrEqual(mostBlocks * blockSize);
  expect(feed.log.at(seq)?.seq).toBe(seq);
  expect(feed.story.length).toBeLessThan(2 * mostStory);
  expect(feed.story[0]?.seq).toBeLessThanOrEqual(feed.storyFrom);
  expect(feed.story.at(-1)?.seq).toBe(seq);
  expect(feed.story.filter((e) => e.seq >= feed.storyFrom)).toHaveLength(seq - feed.storyFrom + 1);

  for (let i = 0; i < 1_500; i++) {
    feed.add({ ...chunk(++seq, "x".repeat(100_000)), artifact_id: `a${i % 3 === 0 ? 0 : i}`, append: i % 3 === 0 && i > 0 });
  }
  expect(feed.known.size).toBeLessThan(2 * mostKnown);
  expect(feed.known.has("a0"), "it changes all the time").toBe(true);
  const kept = Array.from({ length: 1_500 }, (_, i) => feed.artifact(`a${i}`)).filter((a) => a !== undefined);
  expect(kept.length).toBeLessThanOrEqual(mostOpen);
  expect(kept.reduce((n, a) => n + (a.parts[0]?.text?.length ?? 0), 0)).toBeLessThanOrEqual(mostOpenBytes);
  expect(feed.artifact("a0")?.parts[0]).toMatchObject({ cut: true });
  expect(feed.artifact("a1498")).toBeDefined();
  expect(feed.log.inMemory, "large events count by their size").toBeLessThanOrEqual(2 * blockSize);

  for (let i = 0; i < 1000; i++) {
    feed.log.broke(seq);
    feed.log.resumed();
  }
  expect(feed.log.cuts.length).toBeLessThanOrEqual(100);
});

test("a trace is a link only if the address is one of the web", () => {
  const id = "0af7651916cd43dd8448eb211c80319c";
  expect(traceHref("https://tempo.example/trace/{trace_id}?x={trace_id}", id)).toBe(
    `https://tempo.example/trace/${id}?x=${id}`,
  );
  for (const bad of [undefined, "", "javascript:alert('{trace_id}')", "/trace/{trace_id}"]) {
    expect(traceHref(bad, id)).toBeUndefined();
  }
});

test("text shows what it is", () => {
  expect(visible("a\u202Etxt.exe\u0000\n\tb")).toBe("a⟨U+202E⟩txt.exe⟨U+0000⟩\n\tb");
  expect(visible("é 👍 中")).toBe("é 👍 中");
  expect(line(" a\n\n b ")).toBe("a b");
  expect(line("x".repeat(1000)).length).toBeLessThan(170);
  expect([size(0), size(1023), size(1536), size(5 << 20)]).toEqual(["0 B", "1023 B", "1.5 KiB", "5.0 MiB"]);
  expect(hostOf("https://user@Example.com:8443/x")).toBe("example.com:8443");
  for (const bad of ["javascript:alert(1)", " JaVaScRiPt:x", "data:text/html,x", "//x", "file:///etc", "blob:https://x", ""]) {
    expect(hostOf(bad)).toBeUndefined();
  }
});

test("tables keep digits, and hostile ones are bounded", () => {
  const data = parseJson('[{"n":12345678901234567890,"1":1.0},{"n":2,"1":null,"x":[1,2]}]');
  expect(tableOf(data)).toEqual({
    head: ["n", "1", "x"],
    rows: [
      ["12345678901234567890", "1.0", ""],
      ["2", "null", "[2]"],
    ],
    more: 0,
  });
  expect(tableOf([{ a: 1 }])).toBeUndefined();
  expect(tableOf([1, 2])).toBeUndefined();
  expect(tableOf(Array.from({ length: 100 }, (_, i) => ({ [`k${i}`]: 1 })))).toBeUndefined();
  expect(tableOf(Array.from({ length: 5000 }, () => ({ a: 1 })))).toMatchObject({ more: 4800 });
  expect(csv('a,"b ""q"", c"\r\n1,2\n', 10)).toEqual([
    ["a", 'b "q", c'],
    ["1", "2"],
  ]);
  expect(csv("one\ntwo", 10)).toBeUndefined();
  expect(csv("a,b\n".repeat(1000), 10)).toHaveLength(10);
});
