// The keyboard: single keys, sequences such as "g t", and Mod+K. Pages register theirs while they are shown.
import { useEffect, useRef, useSyncExternalStore } from "react";

export interface Shortcut {
  keys: string;
  label: string;
  group: string;
  run: (event: KeyboardEvent) => void;
}

let shortcuts: Shortcut[] = [];
const listeners = new Set<() => void>();
let pending = "";
let pendingUntil = 0;

function set(next: Shortcut[]): void {
  shortcuts = next;
  for (const tell of listeners) tell();
}

/** typing says whether a key belongs to the element with the focus. */
function typing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches('input:not([type="checkbox"]):not([type="radio"]), textarea, select, [role="combobox"]'))
  );
}

/** nameOf returns the name of a pressed key, such as "j", "?", "Escape" or "Mod+k". */
export function nameOf(event: KeyboardEvent): string {
  const mod = event.metaKey || event.ctrlKey;
  const key = event.key.length === 1 && mod ? event.key.toLowerCase() : event.key;
  return mod ? `Mod+${key}` : event.altKey ? `Alt+${key}` : key;
}

/** handle runs the newest shortcut for a key, and says whether there was one. */
export function handle(event: KeyboardEvent, now = Date.now()): boolean {
  if (event.defaultPrevented || event.isComposing) return false;
  const key = nameOf(event);
  if (!key.startsWith("Mod+")) {
    if (typing(event.target)) return false;
    // A dialog has keys of its own. A toast has the same role, but is no dialog.
    if (document.querySelector('[role="dialog"]:not(.toast), [role="alertdialog"]:not(.toast), [role="menu"]')) return false;
  }
  const sequence = pending && now < pendingUntil ? `${pending} ${key}` : key;
  pending = "";
  const found = shortcuts.findLast((s) => s.keys === sequence) ?? shortcuts.findLast((s) => s.keys === key);
  if (found) {
    // A button or a link with the focus has its own Enter.
    if (key === "Enter" && event.target instanceof HTMLElement && event.target.closest("a, button, [role=checkbox]"))
      return false;
    event.preventDefault();
    found.run(event);
    return true;
  }
  if (shortcuts.some((s) => s.keys.startsWith(`${key} `))) {
    pending = key;
    pendingUntil = now + 1500;
  }
  return false;
}

export function listen(): () => void {
  const on = (event: KeyboardEvent) => {
    handle(event);
  };
  window.addEventListener("keydown", on);
  return () => window.removeEventListener("keydown", on);
}

/** useShortcut binds keys while the component is mounted. Undefined keys bind nothing. */
export function useShortcut(keys: string | undefined, label: string, group: string, run: (event: KeyboardEvent) => void): void {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    if (!keys) return;
    const one: Shortcut = { keys, label, group, run: (event) => latest.current(event) };
    set([...shortcuts, one]);
    return () => set(shortcuts.filter((s) => s !== one));
  }, [keys, label, group]);
}

export function useShortcuts(): Shortcut[] {
  return useSyncExternalStore(
    (tell) => {
      listeners.add(tell);
      return () => listeners.delete(tell);
    },
    () => shortcuts,
  );
}
