import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { get } from "../api/client";
import type { Event, TaskDetail } from "../api/schema";
import { Badge, Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { Copy } from "../components/Copy";
import { ErrorBox } from "../components/ErrorBox";
import { JsonView } from "../components/JsonView";
import { listOf, member, partOf, textOf } from "../conversation/types";
import { useMe } from "../layout/me";
import { useMedia } from "../lib/media";
import { useSettings } from "../lib/settings";
import { useShortcut } from "../lib/shortcuts";
import { line, size } from "../lib/text";
import { exact } from "../lib/time";
import type { Live } from "./useTask";
import "./Log.css";

/** followed is how many rows have a place at least while the log is followed; twice as many at most. */
const followed = 5_000;

/**
 * LogView shows every event of a task. Only the visible rows are in the document, and only pages that were looked at are in
 * memory: the place of an event is its seq, so any page of a long log is one request away.
 */
export function LogView({
  task,
  live,
  seq,
  onSeq,
}: {
  task: TaskDetail;
  live: Live;
  seq: number | undefined;
  onSeq: (seq: number) => void;
}) {
  const { log } = live.feed;
  const scroller = useRef<HTMLDivElement>(null);
  const height = useMedia("(pointer: coarse)") ? 40 : 30;
  const narrow = useMedia("(max-width: 720px)");
  const [open, setOpen] = useState<ReadonlySet<number>>(() => new Set(seq ? [seq] : []));
  const [cursor, setCursor] = useState(seq ?? 0);
  const [version, setVersion] = useState("");
  const [following, setFollowing] = useState(seq === undefined && live.state !== "ended");
  const { data: me } = useMe();
  const growing = live.state !== "ended";
  // The events up to base have no place: a log that is followed for days must not count all of its rows.
  const [base, setBase] = useState(0);
  const after = useRef<{ seq: number; align: "auto" | "start" | "center" | "end" } | undefined>(undefined);

  const virtual = useVirtualizer({
    count: log.lastSeq - base,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (i) => base + i + 1,
    overscan: 20,
    initialOffset: seq ? Math.max(0, (seq - 6) * height) : 0,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the virtualizer is stable, its sizes are not
  useEffect(() => virtual.measure(), [height]);
  const items = virtual.getVirtualItems();
  const first = base + (items[0]?.index ?? 0) + 1;
  const last = base + (items.at(-1)?.index ?? -1) + 1;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new event may be one that is wanted
  useEffect(() => log.want(first, last), [log, first, last, live.tick]);

  const go = useCallback(
    (to: number, align: "auto" | "center" | "end" = "auto") => {
      const target = Math.max(1, Math.min(log.lastSeq, to));
      setCursor(target);
      if (target <= base) {
        after.current = { seq: target, align };
        setBase(0);
      } else virtual.scrollToIndex(target - base - 1, { align });
      return target;
    },
    [log, virtual, base],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the sizes of rows are those of other events
  useLayoutEffect(() => {
    virtual.measure();
    const to = after.current;
    after.current = undefined;
    if (to) virtual.scrollToIndex(to.seq - base - 1, { align: to.align });
  }, [base]);
  const toggle = useCallback((n: number) => {
    setCursor(n);
    setOpen((old) => {
      const next = new Set(old);
      if (!next.delete(n)) next.add(n);
      return next;
    });
  }, []);

  // A link leads to an event: show it, and what it says.
  const shown = useRef<number | undefined>(undefined);
  useEffect(() => {
    if (!seq || shown.current === seq || log.lastSeq < 1) return;
    shown.current = seq;
    setFollowing(false);
    setOpen((old) => (old.has(seq) ? old : new Set(old).add(seq)));
    go(seq, "center");
  }, [seq, go, log.lastSeq]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: it follows what is added
  useEffect(() => {
    if (!following || !growing || log.lastSeq === 0) return;
    if (log.lastSeq - base > 2 * followed) setBase(log.lastSeq - followed);
    else virtual.scrollToIndex(log.lastSeq - base - 1, { align: "end" });
  }, [following, growing, log.lastSeq, live.tick, base]);
  const top = useRef(0);
  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 8;
    if (element.scrollTop < top.current - 2 && !atEnd) setFollowing(false);
    top.current = element.scrollTop;
    if (base > 0 && !following && element.scrollTop < 50 * height) {
      after.current = { seq: first, align: "start" };
      setBase(0);
    }
  };

  const move = (by: number) => {
    setFollowing(false);
    const from = cursor >= first && cursor <= last ? cursor : by > 0 ? first - 1 : last + 1;
    const target = go(from + by);
    requestAnimationFrame(() =>
      scroller.current?.querySelector<HTMLElement>(`[data-seq="${target}"]`)?.focus({ preventScroll: true }),
    );
  };
  useShortcut("j", "Next event", "Log", () => move(1));
  useShortcut("k", "Previous event", "Log", () => move(-1));
  useShortcut("ArrowDown", "Next event", "Log", () => move(1));
  useShortcut("ArrowUp", "Previous event", "Log", () => move(-1));
  useShortcut("e", "Open or close the event", "Log", () => cursor > 0 && toggle(cursor));
  useShortcut("Home", "First event", "Log", () => {
    setFollowing(false);
    go(1);
  });
  useShortcut("End", "Newest event", "Log", () => {
    go(log.lastSeq, "end");
    if (growing) setFollowing(true);
  });
  useShortcut(growing ? "f" : undefined, "Follow the newest event", "Log", () => setFollowing(true));

  return (
    <div className="log">
      <div className="log-bar">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const to = Number(new FormData(event.currentTarget).get("seq"));
            if (to > 0) onSeq(Math.min(to, log.lastSeq));
          }}
        >
          <label>
            Go to <span className="visually-hidden">the event with the seq</span>
            <input
              className="input log-goto"
              name="seq"
              inputMode="numeric"
              pattern="[0-9]+"
              placeholder={`1–${log.lastSeq}`}
            />
          </label>
        </form>
        <label className="log-version">
          Show <span className="visually-hidden">events</span>
          <select className="input" value={version} onChange={(event) => setVersion(event.target.value)}>
            <option value="">as stored</option>
            {(me?.a2a_versions ?? []).toReversed().map((v) => (
              <option key={v} value={v}>
                as A2A {v}
              </option>
            ))}
          </select>
        </label>
        <span className="muted log-count">{log.lastSeq.toLocaleString("en")} events</span>
        {growing && (
          <Button kind="ghost" aria-pressed={following} onClick={() => setFollowing(!following)}>
            {following ? "Following" : "↓ Follow"}
          </Button>
        )}
      </div>
      {log.error !== undefined && (
        <ErrorBox
          title="A page of the log cannot be read"
          error={log.error}
          retry={() => {
            log.again();
            log.want(first, last);
          }}
        />
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
      <section className="log-scroll" ref={scroller} onScroll={onScroll} tabIndex={0} aria-label="Log">
        <div className="log-rows" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const n = base + item.index + 1;
            return (
              <div
                key={item.key}
                data-index={item.index}
                ref={virtual.measureElement}
                className="log-place"
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <Row
                  seq={n}
                  event={log.at(n)}
                  open={open.has(n)}
                  target={n === seq}
                  active={n === cursor}
                  toggle={toggle}
                  onSeq={onSeq}
                  narrow={narrow}
                  height={height}
                  version={open.has(n) ? version : ""}
                  task={task.id}
                />
              </div>
            );
          })}
        </div>
      </section>
    </div>
  );
}

const tones = { message: "info", status: "neutral", artifact: "good", run: "warn" } as const;

const Row = memo(function Row({
  seq,
  event,
  open,
  target,
  active,
  toggle,
  onSeq,
  narrow,
  height,
  version,
  task,
}: {
  seq: number;
  event: Event | undefined;
  open: boolean;
  target: boolean;
  active: boolean;
  toggle: (seq: number) => void;
  onSeq: (seq: number) => void;
  narrow: boolean;
  height: number;
  version: string;
  task: string;
}) {
  const { zone } = useSettings();
  if (!event) {
    return (
      <div className="log-row log-empty" style={{ height }}>
        <span className="task-seq">#{seq}</span>
        <span className="log-skeleton" />
      </div>
    );
  }
  const at = new Date(event.at);
  const whole = exact(at, zone);
  return (
    <div className="log-event" data-target={target || undefined} data-open={open || undefined} id={`seq-${seq}`}>
      <div className="log-row" style={{ height }}>
        <a
          className="task-seq"
          href={`?tab=log&seq=${seq}`}
          title="A link to this event"
          onClick={(e) => {
            if (e.metaKey || e.ctrlKey || e.shiftKey) return;
            e.preventDefault();
            onSeq(seq);
          }}
        >
          #{seq}
        </a>
        <button
          type="button"
          className="log-open"
          data-seq={seq}
          aria-expanded={open}
          data-active={active || undefined}
          onClick={() => toggle(seq)}
        >
          <span className="log-kind">
            {event.kind === "status" && event.state ? (
              <Badge state={event.state} />
            ) : (
              <Tag tone={tones[event.kind]}>{event.kind}</Tag>
            )}
          </span>
          <span className="log-text">{summary(event)}</span>
          {!narrow && event.attempt > 0 && <span className="log-attempt">attempt {event.attempt}</span>}
          <time dateTime={event.at} title={whole}>
            {whole.slice(11, narrow ? 19 : 23)}
          </time>
        </button>
      </div>
      {open && <Body event={event} version={version} task={task} />}
    </div>
  );
});

function Body({ event, version, task }: { event: Event; version: string; task: string }) {
  const { zone } = useSettings();
  const shown = useQuery({
    queryKey: ["task", task, "event", event.seq, version],
    queryFn: async ({ signal }) => {
      const page = await get("/tasks/{id}/log", {
        path: { id: task },
        query: { after: event.seq - 1, limit: 1, version },
        signal,
      });
      // An event that clients do not see has no such member.
      return { a2a: page.events[0]?.a2a };
    },
    enabled: version !== "",
    staleTime: Number.POSITIVE_INFINITY,
  });
  const link = useMemo(() => `${location.origin}${location.pathname}?tab=log&seq=${event.seq}`, [event.seq]);
  return (
    <div className="log-body">
      <p className="log-facts">
        <span>{exact(new Date(event.at), zone)}</span>
        {event.attempt > 0 && <span>attempt {event.attempt}</span>}
        {event.artifact_id !== undefined && <span>artifact {line(event.artifact_id, 80)}</span>}
        {event.append && <span>append</span>}
        {event.last && <span>last chunk</span>}
        <Copy text={link} label="Copy a link to this event" />
      </p>
      {version === "" ? (
        event.payload === undefined ? (
          <p className="muted">The event has no payload.</p>
        ) : (
          <JsonView value={event.payload} open={3} />
        )
      ) : shown.error ? (
        <ErrorBox error={shown.error} retry={() => shown.refetch()} />
      ) : shown.isPending ? (
        <p className="muted">Loading…</p>
      ) : shown.data.a2a === undefined ? (
        <p className="muted">Clients of A2A {version} do not see this event.</p>
      ) : (
        <JsonView value={shown.data.a2a} open={4} />
      )}
    </div>
  );
}

/** summary says what an event has, in one line. */
export function summary(e: Event): string {
  const p = e.payload;
  if (e.kind === "artifact") {
    const name = textOf(member(p, "name")) || e.artifact_id || "";
    const marks = [e.append ? "append" : "", e.last ? "last" : ""].filter(Boolean).join(", ");
    return line(`${name}${marks ? ` (${marks})` : ""}: ${partsLine(member(p, "parts"))}`, 300);
  }
  if (e.kind === "run") {
    const error = textOf(member(p, "error"));
    const calls = listOf(member(p, "calls")).length;
    return line(
      [textOf(member(p, "outcome")) ?? "", calls ? `${calls} calls` : "", error ?? ""].filter(Boolean).join(": "),
      300,
    );
  }
  const message = e.kind === "status" ? member(p, "message") : p;
  const role = e.kind === "message" ? `${textOf(member(p, "role")) === "agent" ? "agent" : "client"}: ` : "";
  const text = message === undefined || message === null ? "" : partsLine(member(message, "parts"));
  const cause = textOf(member(p, "cause"));
  return line(`${role}${text}${cause ? ` (${cause})` : ""}`, 300);
}

function partsLine(parts: unknown): string {
  return listOf(parts)
    .slice(0, 8)
    .map(partOf)
    .map((p) =>
      p.kind === "text"
        ? (p.text ?? "").slice(0, 400)
        : p.kind === "raw"
          ? `[${p.filename ?? p.mediaType ?? "file"}, ${size(p.bytes)}]`
          : p.kind === "url"
            ? `[${p.url}]`
            : "[data]",
    )
    .join(" ");
}
