// The pages, in the order of the navigation. The keys follow "g".
import type { Me } from "../api/schema";

export const pages = [
  { to: "/", name: "Home", key: "h", icon: "M2.5 7.5 8 3l5.5 4.5M4 6.5v6.5h8V6.5M6.8 13V9.5h2.4V13" },
  { to: "/tasks", name: "Tasks", key: "t", icon: "M3 4.5h10M3 8h10M3 11.5h6" },
  { to: "/inbox", name: "Inbox", key: "i", icon: "M2.5 9 4.5 3h7l2 6v4h-11zM2.5 9h3.2l.8 1.6h3l.8-1.6h3.2" },
  { to: "/talk", name: "Talk", key: "c", icon: "M3 3.5h10v7H8l-3 2.5v-2.5H3z" },
  { to: "/agents", name: "Agents", key: "a", icon: "M8 2.5v2M4 4.5h8v7H4zM6.3 7.5v1M9.7 7.5v1M2.5 7v2M13.5 7v2" },
  {
    to: "/webhooks",
    name: "Webhooks",
    key: "w",
    icon: "M5.5 11.5a2.5 2.5 0 1 1-1-4.5L7 3.5M10.5 11.5H5.5M9 6l2.5 3.5a2.5 2.5 0 1 1-1 4",
  },
  { to: "/jobs", name: "Jobs", key: "j", icon: "M2.5 5h11v8h-11zM6 5V3h4v2M2.5 8.5h11" },
  { to: "/system", name: "System", key: "s", icon: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01" },
  { to: "/audit", name: "Audit", key: "u", icon: "M4 2.5h8v11H4zM6 5.5h4M6 8h4M6 10.5h2" },
  { to: "/keys", name: "API keys", key: "k", icon: "M9.5 6.5a2.5 2.5 0 1 1-1 2L3 13.5v-2l1-1M8.6 7.4 8 8" },
] as const;

/** may says whether an operator may open a page. The server decides again. */
export function may(to: string, me: Me | undefined): boolean {
  return me === undefined || (to !== "/audit" && to !== "/keys") || me.right === "administer";
}
