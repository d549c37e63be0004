// The tasks that wait for people. The navigation counts them, and a page answers them.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { refresh } from "./refresh";

/** most bounds the questions that the inbox has at a time. */
export const most = 100;

/** useInbox returns the tasks that wait for people, the one that waits longest first. */
export function useInbox() {
  return useQuery({
    queryKey: ["inbox"],
    queryFn: ({ signal }) => get("/inbox", { query: { limit: most }, signal }),
    select: (page) => ({ ...page, tasks: page.tasks.toSorted((a, b) => (a.status_at < b.status_at ? -1 : 1)) }),
    refetchInterval: refresh.later,
  });
}
