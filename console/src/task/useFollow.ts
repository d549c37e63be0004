import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

/** useFollow keeps a scroller at its end while it grows, until the reader scrolls up. */
export function useFollow(scroller: RefObject<HTMLElement | null>, live: boolean, change: unknown, begin = live) {
  const [following, setFollowing] = useState(begin);
  const now = useRef(following);
  now.current = following;
  const last = useRef(0);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const on = () => {
      const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
      // Only a scroll upwards ends it: what grows below moves nothing.
      if (element.scrollTop < last.current - 2 && !atEnd) setFollowing(false);
      last.current = element.scrollTop;
    };
    element.addEventListener("scroll", on, { passive: true });
    return () => element.removeEventListener("scroll", on);
  }, [scroller]);
  const toEnd = useCallback(() => {
    const element = scroller.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, [scroller]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each change of the content counts
  useLayoutEffect(() => {
    if (now.current && live) toEnd();
  }, [change, live, toEnd, following]);
  return {
    following,
    follow: () => {
      setFollowing(true);
      toEnd();
    },
    stop: () => setFollowing(false),
  };
}
