import { useCallback, useRef } from "react";

/** useStable returns a function that stays the same and calls the newest f, so that parts of a page that got it need not render again. */
export function useStable<A extends unknown[]>(f: (...args: A) => void): (...args: A) => void {
  const latest = useRef(f);
  latest.current = f;
  return useCallback((...args: A) => latest.current(...args), []);
}
