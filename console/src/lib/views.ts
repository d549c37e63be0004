// Views: filters with names, which the server keeps for the operators of a tenant.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { parseSearch, type Search } from "./search";

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

const none: View[] = [];

/** useViews returns the saved ones; until the server answers, none. */
export function useViews(): View[] {
  const { data } = useQuery({
    queryKey: ["views"],
    queryFn: async ({ signal }) =>
      (await get("/views", { signal })).views.map((v): View => ({ name: v.name, search: parseSearch(`?${v.filter}`) })),
    staleTime: 60_000,
  });
  return data ?? none;
}
