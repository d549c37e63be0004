// Times as people read them.
import { useSyncExternalStore } from "react";
import { type Settings, settings, subscribe } from "./settings";

const units: [limit: number, seconds: number, name: string][] = [
  [60, 1, "s"],
  [3600, 60, "m"],
  [86_400, 3600, "h"],
  [30 * 86_400, 86_400, "d"],
  [365 * 86_400, 30 * 86_400, "mo"],
  [Number.POSITIVE_INFINITY, 365 * 86_400, "y"],
];

/** since returns "4m". */
export function since(at: Date, now: number): string {
  return relative(at, now).replace(/ ago$|^in /, "");
}

/** relative returns "3m ago", or "in 3m". */
export function relative(at: Date, now: number): string {
  const seconds = Math.round((now - at.getTime()) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "now";
  const [, unit, name] = units.find(([limit]) => size < limit) ?? [0, 1, "s"];
  const amount = `${Math.floor(size / unit)}${name}`;
  return seconds > 0 ? `${amount} ago` : `in ${amount}`;
}

/** parts returns "2026-11-26", "23:46:49" and "123". A format of Intl would take the first view 50 ms. */
function parts(at: Date, zone: Settings["zone"]): [date: string, time: string, ms: string] {
  const shifted = zone === "utc" ? at : new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  const iso = shifted.toISOString();
  return [iso.slice(0, 10), iso.slice(11, 19), iso.slice(20, 23)];
}

let local: string | undefined;

/** zoneName returns the zone of shown times, such as UTC or Europe/Oslo. */
export function zoneName(zone: Settings["zone"]): string {
  if (zone === "utc") return "UTC";
  local ??= Intl.DateTimeFormat().resolvedOptions().timeZone; // each row of a list asks
  return local;
}

/** absolute returns "2026-11-26 23:46:49". */
export function absolute(at: Date, zone: Settings["zone"]): string {
  return parts(at, zone).slice(0, 2).join(" ");
}

/** exact returns the whole time with milliseconds and its zone. */
export function exact(at: Date, zone: Settings["zone"]): string {
  const [day, time, ms] = parts(at, zone);
  return `${day} ${time}.${ms} ${zoneName(zone)}`;
}

/** duration returns "1.5s" or "3m 20s". */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const s = ms / 1000;
  if (s < 60) return `${Number(s.toFixed(1))}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${Math.floor(s % 60)}s`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86_400)}d ${Math.floor((s % 86_400) / 3600)}h`;
}

// One timer for all shown times. It runs only while somebody looks.
const ticks = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function onTick(tell: () => void): () => void {
  const stop = subscribe(tell);
  ticks.add(tell);
  timer ??= setInterval(() => {
    if (!document.hidden) for (const one of ticks) one();
  }, 1000);
  return () => {
    stop();
    ticks.delete(tell);
    if (ticks.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** useShownTime returns a time as the reader has chosen to see it. Components render again only when the text changes. */
export function useShownTime(at: Date): string {
  return useShown(() => {
    const { times, zone } = settings();
    return times === "relative" ? relative(at, Date.now()) : absolute(at, zone);
  });
}

/** useShown returns a text that depends on the time of day. */
export function useShown(text: () => string): string {
  return useSyncExternalStore(onTick, text);
}
