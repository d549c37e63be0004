// The reader's settings: theme, times, zone. They stay in this browser.
import { useSyncExternalStore } from "react";

export interface Settings {
  theme: "system" | "light" | "dark";
  times: "relative" | "absolute";
  zone: "local" | "utc";
  /** columns are those of the list of tasks that are not as they are at first. */
  columns: Record<string, boolean>;
}

const name = "holdfast.settings"; // public/theme.js reads it, too
const defaults: Settings = { theme: "system", times: "relative", zone: "local", columns: {} };
const listeners = new Set<() => void>();
let current = load();

function load(): Settings {
  try {
    return { ...defaults, ...JSON.parse(localStorage.getItem(name) ?? "{}") };
  } catch {
    return defaults;
  }
}

export function settings(): Settings {
  return current;
}

export function change(some: Partial<Settings>): void {
  current = { ...current, ...some };
  try {
    localStorage.setItem(name, JSON.stringify(current));
  } catch {
    // A browser without storage keeps the choice until the tab is closed.
  }
  apply();
  for (const tell of listeners) tell();
}

export function apply(): void {
  if (current.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = current.theme;
}

export function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

export function useSettings(): Settings {
  return useSyncExternalStore(subscribe, settings);
}
