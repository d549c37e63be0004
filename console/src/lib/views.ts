// Saved views: filters with names. They stay in this browser.
import { useSyncExternalStore } from "react";
import type { Search } from "./search";

export interface View {
  name: string;
  search: Search;
}

/** builtin are the views that everybody has. */
export const builtin: View[] = [
  { name: "All", search: {} },
  { name: "Running", search: { state: ["working", "submitted"] } },
  { name: "Waiting for input", search: { state: ["input-required", "auth-required"] } },
  { name: "Failed today", search: { state: ["failed", "rejected"], since: "24h" } },
];

const name = "holdfast.views";
const listeners = new Set<() => void>();
let current: View[] = load();

function load(): View[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(name) ?? "[]");
    return Array.isArray(list)
      ? list.filter((v): v is View => typeof v?.name === "string" && typeof v?.search === "object")
      : [];
  } catch {
    return [];
  }
}

function store(next: View[]): void {
  current = next;
  try {
    localStorage.setItem(name, JSON.stringify(next));
  } catch {
    // A browser without storage keeps them until the tab is closed.
  }
  for (const tell of listeners) tell();
}

/** saveView saves a view. One with the same name is replaced. */
export function saveView(view: View): void {
  store([...current.filter((v) => v.name !== view.name), view]);
}

export function deleteView(view: View): void {
  store(current.filter((v) => v !== view));
}

export function useViews(): View[] {
  return useSyncExternalStore(
    (tell) => {
      listeners.add(tell);
      return () => listeners.delete(tell);
    },
    () => current,
  );
}
