import { expect, test } from "vitest";
import { parseJson } from "../api/json";
import type { Event, Run } from "../api/schema";
import { tableOf } from "../conversation/Parts";
import { csv, hostOf, line, size, visible } from "../lib/text";
import { apply, artifactOf, begun } from "./artifacts";
import { conversation, traceHref, traces } from "./conversation";
import { differences, stretches, transcript } from "./differences";
import { Feed, merged, mostKnown, mostOpen, mostOpenBytes, mostStory } from "./feed";
import { blockSize, mostBlocks, TaskLog } from "./log";
import { longestPause, Player } from "./player";
import { artifactRow, once, pace, placed, rowsOf, scaleOf, webhookRows } from "./rows";

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

test("an error is shown once, whether it is in a run, in the words of the end, or its cause", () => {
  const trace = "Traceback:\n  line 3\nZeroDivisionError";
  const events = [
    event(1, { kind: "run", payload: { outcome: "retry", error: trace } }),
    event(2, { kind: "run", payload: { outcome: "retry", error: "another" } }),
    event(3, { kind: "run", payload: { outcome: "checkpoint", checkpoint: 1 } }),
    event(4, {
      state: "failed",
      payload: { cause: trace, message: { parts: [{ text: "Traceback: line 3 ZeroDivisionError" }] } },
    }),
  ];
  expect(conversation(events, [], true, trace)).toMatchObject([
    { type: "note", same: true },
    { type: "note", same: false, error: "another" },
    { type: "end", same: true, parts: [] },
  ]);
  expect(conversation(events, [], true)).toMatchObject([{ same: false, error: trace }, {}, { same: true }]);
  expect(conversation(events.slice(3), [], true)).toMatchObject([{ type: "end", cause: trace, same: true, parts: [] }]);
});

const run = (n: number, outcome: string, from: number, to: number | undefined, seq?: number): Run => ({
  run: n,
  turn: 1,
  attempt: n,
  outcome,
  started_at: at(from),
  ended_at: to === undefined ? undefined : at(to),
  seq,
});
const task = { id: "t", created_at: at(0), state: "completed", status_at: at(60) } as const;
const shown = (rows: ReturnType<typeof rowsOf>) =>
  rows.map(
    (r) =>
      `${r.kind}${r.open ? " open" : ""} ${r.bars.map((b) => `${b.kind} ${new Date(b.from).getSeconds()}-${new Date(b.to).getSeconds()}`).join(", ")}`,
  );

test("a waterfall has the queue, runs, backoff, waits, questions and called tasks", () => {
  const events = [
    event(1, { kind: "message", attempt: 0 }),
    event(8, { kind: "run", payload: { outcome: "waits", until: at(20) } }),
    event(9, { kind: "run", payload: { outcome: "calls", calls: [] } }),
    event(10, { state: "input-required" }),
    event(11, { kind: "message", attempt: 0, at: at(50) }),
  ];
  const runs = [
    { ...run(1, "retry", 2, 3, 4), error: "boom" },
    run(2, "waits", 6, 8, 8),
    run(3, "calls", 22, 24, 9),
    run(4, "input-required", 30, 31, 10),
    run(5, "completed", 52, 59, 12),
  ];
  const calls = [{ id: "c", task: "child", called_at: at(24) }];
  const rows = rowsOf(task, runs, events, calls, 0);
  expect(shown(rows)).toEqual([
    "run queue 0-2, run 2-3",
    "backoff backoff 3-6",
    "run run 6-8",
    "wait wait 8-20",
    "run queue 20-22, run 22-24",
    "wait wait 24-30",
    "run run 30-31",
    "question question 31-50",
    "run queue 50-52, run 52-59",
  ]);
  expect(rows[5]?.children).toMatchObject([{ kind: "call", call: { task: "child" }, open: true }]);
  expect(rows[4]?.seq).toBe(9);
  expect(once(rows, "boom")[0]).toMatchObject({ again: true });
  expect(once(rows)[0]).toMatchObject({ again: false });

  // What has not ended lasts until now, and the tries that found the agent away are one row.
  const open = { ...task, state: "working" as const };
  expect(shown(rowsOf(open, [], [], [], Date.parse(at(9))))).toEqual(["queue open queue 0-9"]);
  expect(shown(rowsOf(open, [run(1, "running", 2, undefined)], [], [], Date.parse(at(9))))).toEqual([
    "run open queue 0-2, run 2-9",
  ]);
  const away = [run(1, "away", 1, 1), run(2, "away", 3, 3), run(3, "away", 7, 7)];
  expect(shown(rowsOf(open, away, [], [], Date.parse(at(9))))).toEqual([
    "run queue 0-1, run 1-1",
    "away open away 1-3, away 3-7, away 7-9",
  ]);
});

test("the pace of a task is that of its chunks", () => {
  const once = { created_at: at(0), turns: 1, runs: 1 };
  expect(pace(once, chunk(2, ""), chunk(6, ""), 100)).toEqual({ wait: 2000, speed: 25 });
  // No chunk, no usage, one chunk, and times that lie between turns and attempts.
  expect(pace(once, undefined, undefined, 100)).toEqual({});
  expect(pace(once, chunk(2, ""), chunk(6, ""), 0).speed).toBeUndefined();
  expect(pace(once, chunk(2, ""), chunk(2, ""), 100).speed).toBeUndefined();
  expect(pace({ ...once, turns: 2 }, chunk(2, ""), chunk(6, ""), 100)).toEqual({ wait: 2000, speed: undefined });
  expect(pace({ ...once, runs: 2 }, chunk(2, ""), chunk(6, ""), 100).speed).toBeUndefined();
});

test("calls of the model and of tools stand below their run, artifacts and webhooks have their times", () => {
  const step = (seq: number, checkpoint: unknown) =>
    event(seq, { kind: "run", payload: { outcome: "checkpoint", checkpoint } });
  const record = (seq: number, checkpoint: unknown) => event(seq, { kind: "run", payload: { outcome: "record", checkpoint } });
  const events = [
    step(3, { said: { usage: { inputTokens: 1000, outputTokens: 20 }, calls: [{ name: "files__read" }] } }),
    step(4, { began: { round: 0, call: 0 } }),
    step(6, { of: { round: 0, call: 0 }, result: { text: "no such file", error: true } }),
    step(7, { page: 3 }),
    record(7, { kind: "step", name: "pay", nth: 2, tries: 3, took: 1, error: { type: "Declined" } }),
    record(7, { kind: "wait", name: "wait", nth: 1, data: { asks: [["ok", 1]] } }),
    event(8, { state: "completed" }),
  ];
  const [first] = rowsOf(task, [run(1, "completed", 2, 8, 8)], events, [], 0);
  expect(first?.children?.map((r) => [r.kind, r.name, r.note, r.error, ...shown([r])])).toEqual([
    ["model", "Model", "1,000 tokens in, 20 out", undefined, "model model 2-3"],
    ["tool", "files__read", undefined, "no such file", "tool tool 4-6"],
    ["checkpoint", "Checkpoint", undefined, undefined, "checkpoint checkpoint 7-7"],
    ["step", "pay 2", "3 tries", "Declined", "step step 6-7"],
  ]);
  const last = chunk(8, "", { payload: { event_metadata: { model: "m", usage: { totalTokens: 7 } } } });
  const artifact = artifactRow("a", chunk(5, "", { payload: { name: "report" } }), last, true, 4);
  expect(artifact).toMatchObject({ name: "report", note: "4 chunks · m · 7 tokens", seq: 5 });
  expect(placed(first ? [first] : [], [artifact])[0]?.children?.map((r) => r.kind)).toEqual([
    "model",
    "tool",
    "artifact",
    "step",
    "checkpoint",
  ]);
  const tries = [
    {
      config_id: "w",
      at: at(3),
      from_seq: 1,
      to_seq: 2,
      delivery_id: "d",
      attempt: 1,
      class: "status",
      took_ms: 1000,
      error: "500",
    },
    { config_id: "w", at: at(5), from_seq: 1, to_seq: 4, delivery_id: "d", attempt: 2, class: "delivered", took_ms: 1000 },
  ];
  expect(webhookRows(tries, new Map([["w", "https://example.com/hook"]]))).toMatchObject([
    { name: "example.com", note: "2 attempts, 1 failed", error: "500", seq: 4, bars: [{ tone: "bad" }, { tone: "good" }] },
  ]);
});

test("a scale cuts long times in which nothing works", () => {
  const bar = (kind: "run" | "question", from: number, to: number) => ({
    key: `${from}`,
    kind,
    name: "",
    bars: [{ kind, from, to, tone: "good" as const }],
  });
  const scale = scaleOf([bar("run", 0, 1000), bar("question", 1000, 86_401_000), bar("run", 86_401_000, 86_402_000)]);
  expect([scale.at(0), scale.at(1000), scale.at(86_401_000), scale.at(86_402_000)]).toEqual([0, 0.25, 0.75, 1]);
  expect(scale.cuts).toEqual([{ at: 0.5, ms: 86_400_000 }]);
  // Work at the same time counts once, and without work nothing is cut.
  expect(scaleOf([bar("run", 0, 100), bar("run", 50, 200)]).at(100)).toBe(0.5);
  expect(scaleOf([bar("question", 0, 100_000)])).toMatchObject({ cuts: [], from: 0, to: 100_000 });
  expect(scaleOf([]).at(1)).toBe(0);
});

test("a replay keeps the times of the log, and cuts long pauses", async () => {
  const log = [
    event(1, { kind: "message", at: at(0) }),
    { ...chunk(2, "one ", { append: undefined }), at: at(1) },
    { ...chunk(3, "two"), at: at(2) },
    event(4, { state: "completed", at: at(1000) }),
  ];
  const player = new Player(Date.parse(at(0)), 4, async (after, limit) => log.slice(after, after + limit));
  const text = () => player.feed.artifact("a")?.parts[0]?.text;
  await player.advance(0);
  expect([player.feed.story.length, text()]).toEqual([1, undefined]);
  await player.advance(1000);
  expect(text()).toBe("one ");
  await player.advance(999);
  expect(text()).toBe("one ");
  await player.advance(1);
  expect([text(), player.over]).toEqual(["one two", false]);
  await player.advance(longestPause);
  await player.advance(longestPause);
  expect([player.over, player.cut > 900_000]).toEqual([true, true]);
  await player.seek(Date.parse(at(1)));
  expect([text(), player.over, player.cut]).toEqual(["one ", false, 0]);
  await player.seek(Date.parse(at(1000)));
  expect([text(), player.over]).toEqual(["one two", true]);
});

test("a comparison pairs the lines that two tasks have in common", () => {
  const lines = transcript([
    event(1, { kind: "message", payload: { role: "user", parts: [{ text: "go" }] } }),
    chunk(2, "a", { append: undefined }),
    event(3, { state: "working", payload: { message: { parts: [{ text: "step" }] } } }),
    chunk(4, "b\nc"),
    event(5, { state: "completed" }),
  ]);
  expect(lines).toEqual(["Client:", "go", "Artifact :", "ab", "c", "Agent:", "step", "Completed"]);
  const pairs = differences(lines, [...lines.slice(0, 3), "ab", "d", "e", ...lines.slice(5)]);
  expect(stretches(pairs)).toMatchObject([
    { same: true },
    {
      same: false,
      pairs: [
        { left: "c", right: "d" },
        { left: undefined, right: "e" },
      ],
    },
    { same: true },
  ]);
  expect(differences(["a"], ["a"])).toEqual([{ left: "a", right: "a" }]);
  expect(differences([], ["a"])).toEqual([{ left: undefined, right: "a" }]);
  expect(differences(["x", "a", "y", "b"], ["a", "b", "z"])).toEqual([
    { left: "x", right: undefined },
    { left: "a", right: "a" },
    { left: "y", right: undefined },
    { left: "b", right: "b" },
    { left: undefined, right: "z" },
  ]);
  const big = (n: number) => Array.from({ length: 3000 }, (_, i) => `${n} ${i}`);
  expect(differences(big(1), big(2))).toHaveLength(3000);
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
  expect([0, 1023, 1536, 5 << 20, 1_048_575, -2048].map(size)).toEqual([
    "0 B",
    "1023 B",
    "1.5 KiB",
    "5.0 MiB",
    "1.0 MiB",
    "-2.0 KiB",
  ]);
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
