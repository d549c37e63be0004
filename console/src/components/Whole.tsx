import type { ReactNode } from "react";
import { useMe } from "../layout/me";
import { EmptyState } from "./EmptyState";
import { ErrorBox } from "./ErrorBox";

/** Whole shows what belongs to the whole server, and tells operators of one tenant, or with a lesser scope, why they do not see it. */
export function Whole({ right = "view", children }: { right?: "view" | "administer"; children: ReactNode }) {
  const { data: me, error, refetch } = useMe();
  if (error) return <ErrorBox error={error} retry={() => refetch()} />;
  if (!me) return <p className="muted">Loading…</p>;
  if (!me.all_tenants) {
    return (
      <EmptyState title="This page shows the whole server">
        Your credential is for the tenant <b>{me.tenant || "without a name"}</b>, and sees what belongs to it: tasks, agents,
        webhooks and keys. An operator with the scope of <code>admin.all_tenants_scope</code> sees this page.
      </EmptyState>
    );
  }
  if (right === "administer" && me.right !== "administer") return <Needs right={right} />;
  return children;
}

/** Needs says which right is missing. */
export function Needs({ right }: { right: string }) {
  return (
    <EmptyState title="Your credential may not read this">
      It needs the scope <code>admin:{right}</code>, or the one that <code>admin.{right}_scope</code> names. Ask an
      administrator of this server.
    </EmptyState>
  );
}
