// Live lists and logs: server-sent events that survive cuts, restarts and hidden tabs.
import { useEffect, useRef, useState } from "react";
import { href } from "./client";
import { parseJson } from "./json";
import { answered, doubt } from "./reach";

export type LiveState = "connecting" | "live" | "cut" | "paused" | "ended";

export interface LiveOptions {
  /** on gets every event, parsed. */
  on: (event: string, data: unknown, id: string) => void;
  onState?: (state: LiveState, detail: { cuts: number; lastEventId: string }) => void;
  /** events are the names to listen to, besides ready, resync and end. */
  events: string[];
  /** from continues after this event. */
  from?: string;
}

const retries = [500, 1000, 2000, 5000, 10_000];
/** A browser has six connections per host for all of its tabs, so a hidden tab gives its own back after this time, and opens none. */
const hiddenAfter = 5_000;

/** connect opens a stream, and opens it again after the last event for as long as it is wanted. */
export function connect(path: string, query: object, options: LiveOptions): () => void {
  let source: EventSource | undefined;
  let last = options.from ?? "";
  let timer: ReturnType<typeof setTimeout> | undefined;
  let hidden: ReturnType<typeof setTimeout> | undefined;
  let tries = 0;
  let cuts = 0;
  let state: LiveState | undefined;
  let over = false;

  const tell = (next: LiveState) => {
    if (next === state) return;
    state = next;
    options.onState?.(next, { cuts, lastEventId: last });
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = undefined;
  };
  const open = () => {
    close();
    tell(cuts > 0 ? "cut" : "connecting");
    const s = new EventSource(href(path, {}, { ...query, last_event_id: last || undefined }));
    source = s;
    const arrived = (event: MessageEvent<string>) => {
      tries = 0;
      if (event.lastEventId) last = event.lastEventId;
      tell("live");
      options.on(event.type, event.data ? parseJson(event.data) : undefined, event.lastEventId);
      if (event.type === "end") {
        over = true;
        close();
        tell("ended");
      }
    };
    s.onopen = () => {
      answered();
      tell("live");
    };
    for (const name of ["ready", "resync", "end", ...options.events]) s.addEventListener(name, arrived);
    s.onerror = () => {
      if (source !== s) return;
      cuts++;
      tell("cut");
      doubt();
      // The browser tries again by itself only after a cut, not after an answer such as 503. Do both here.
      close();
      timer = setTimeout(open, retries[Math.min(tries++, retries.length - 1)]);
    };
  };
  const visible = () => {
    clearTimeout(hidden);
    if (over) return;
    if (document.hidden) {
      hidden = setTimeout(() => {
        close();
        tell("paused");
      }, hiddenAfter);
    } else if (!source && state === "paused") open();
  };

  if (document.hidden) tell("paused");
  else open();
  document.addEventListener("visibilitychange", visible);
  return () => {
    over = true;
    clearTimeout(hidden);
    document.removeEventListener("visibilitychange", visible);
    close();
  };
}

/** useLive connects while the component is mounted. A new key opens a new stream; on may change freely. */
export function useLive(path: string | undefined, query: object, key: string, options: LiveOptions): LiveState {
  const [state, setState] = useState<LiveState>("connecting");
  const latest = useRef(options);
  latest.current = options;
  // biome-ignore lint/correctness/useExhaustiveDependencies: key stands for path and query
  useEffect(() => {
    if (!path) return;
    return connect(path, query, {
      events: latest.current.events,
      from: latest.current.from,
      on: (event, data, id) => latest.current.on(event, data, id),
      onState: (next, detail) => {
        setState(next);
        latest.current.onState?.(next, detail);
      },
    });
  }, [key]);
  return state;
}
