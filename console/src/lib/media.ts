import { useSyncExternalStore } from "react";

/** useMedia follows a media query. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (tell) => {
      const list = matchMedia(query);
      list.addEventListener("change", tell);
      return () => list.removeEventListener("change", tell);
    },
    () => matchMedia(query).matches,
  );
}

/** useNarrow says whether the page is as narrow as a phone. */
export function useNarrow(): boolean {
  return useMedia("(max-width: 720px)");
}
