// Whether the server answers. Every request and every stream reports here, and a bar above all pages shows it.
import { useSyncExternalStore } from "react";

let since: Date | undefined;
let check = () => {};
const listeners = new Set<() => void>();

function set(next: Date | undefined): void {
  since = next;
  for (const tell of listeners) tell();
}

/** answered reports an answer. */
export function answered(): void {
  if (since) set(undefined);
}

/** silent reports a request without an answer. From then on the page asks until there is one. */
export function silent(): void {
  if (since) return;
  set(new Date());
  check();
}

/** doubt reports a stream that was cut, which says nothing about its cause: the page asks the server at once. */
export function doubt(): void {
  if (!since) check();
}

/** onDoubt sets how the page asks the server whether it is there. */
export function onDoubt(ask: () => void): void {
  check = ask;
}

export function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

/** silence returns since when the server does not answer; undefined: it does. */
export function silence(): Date | undefined {
  return since;
}

export function useSilence(): Date | undefined {
  return useSyncExternalStore(subscribe, silence);
}
