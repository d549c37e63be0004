import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";

/** useMe returns who the operator is and may do. */
export function useMe() {
  return useQuery({
    queryKey: ["me"],
    queryFn: ({ signal }) => get("/me", { signal }),
    staleTime: 60_000,
    // A session may end on another replica or in another tab.
    refetchInterval: 60_000,
  });
}

/** useMayAct says why the operator may not act, or "" if it may. */
export function useActRefusal(): string {
  const { data: me } = useMe();
  if (!me) return "";
  if (me.read_only) return me.read_only;
  return me.right === "view" ? "Your credential has the scope to view, not to act." : "";
}
