import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { silence } from "../api/reach";

/** useMe returns who the operator is and may do. */
export function useMe() {
  return useQuery({
    queryKey: ["me"],
    queryFn: ({ signal }) => get("/me", { signal }),
    // A page may ask for nothing else while its server goes away or its session ends.
    refetchInterval: () => (silence() ? 2_000 : 10_000),
    retry: false,
  });
}

/** useActRefusal says why the operator may not act, or "" if it may. */
export function useActRefusal(): string {
  const { data: me } = useMe();
  if (!me) return "";
  if (me.read_only) return me.read_only;
  return me.right === "view" ? "Your credential has the scope to view, not to act." : "";
}
