import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { get, post } from "../api/client";
import type { LagHost, Webhook } from "../api/schema";
import { Button } from "../components/Button";
import { Confirm } from "../components/Confirm";
import { Text } from "../components/Panel";
import { Progress } from "../components/Progress";
import { Time } from "../components/Time";
import { toast } from "../components/Toast";
import { useActRefusal, useMe } from "../layout/me";
import { plural } from "../lib/amounts";
import { each } from "../lib/each";
import { visible } from "../lib/text";
import { duration } from "../lib/time";

type Action = "redeliver" | "enable" | "disable" | "test";

const texts: Record<Action, { verb: string; help: string; done: string }> = {
  redeliver: {
    verb: "Redeliver all",
    help: "The server delivers at once what the receiver lacks, without waiting for the backoff.",
    done: "are delivered now",
  },
  enable: { verb: "Enable all", help: "Deliveries go on where they stopped.", done: "are enabled" },
  disable: {
    verb: "Disable all",
    help: "Nothing more is delivered. The events are kept until you enable the webhooks. Clients can read your reason.",
    done: "are disabled",
  },
  test: {
    verb: "Send a test",
    help: "The server makes one delivery to a URL of this receiver: the completion of a task that does not exist, and says so.",
    done: "",
  },
};

/** Receivers are the hosts whose webhooks fail most, each with one action for all of its webhooks. */
export function Receivers({
  hosts,
  chosen,
  onHost,
}: {
  hosts: readonly LagHost[];
  chosen?: string;
  onHost: (host: string | undefined) => void;
}) {
  const [acting, setActing] = useState<{ host: LagHost; action: Action }>();
  const refusal = useActRefusal();
  const { data: me } = useMe();
  if (hosts.length === 0) return null;
  const button = (host: LagHost, action: Action, why = refusal): ReactNode => (
    <Button key={action} disabled={why !== ""} title={why || undefined} onClick={() => setActing({ host, action })}>
      {texts[action].verb}
    </Button>
  );
  return (
    <ul className="receivers" aria-label="Receivers that fail most">
      {hosts.slice(0, 5).map((host) => (
        <li key={host.host} className="receiver" data-chosen={host.host === chosen || undefined}>
          <button
            type="button"
            className="receiver-host truncate"
            aria-pressed={host.host === chosen}
            title="Show its webhooks"
            onClick={() => onHost(host.host === chosen ? undefined : host.host)}
          >
            {visible(host.host)}
          </button>
          <span className="muted">
            {host.failing > 0 ? `${plural(host.failing, "webhook")} failing since ` : "since "}
            <Time at={host.since} />
            {host.disabled > 0 && ` · ${host.disabled} disabled`}
          </span>
          {host.error && (
            <div className="receiver-error">
              <Text lines={1}>{host.error}</Text>
            </div>
          )}
          <div className="receiver-actions">
            {host.failing > 0 && button(host, "redeliver")}
            {host.disabled > 0 && button(host, "enable")}
            {host.failing > 0 && button(host, "disable")}
            {button(host, "test", me?.right === "administer" ? refusal : "A test needs the scope to administer.")}
          </div>
        </li>
      ))}
      {acting && <Act key={`${acting.action} ${acting.host.host}`} {...acting} onClose={() => setActing(undefined)} />}
    </ul>
  );
}

/** webhooksOf reads the webhooks of a receiver that fail, or those that are disabled. */
async function webhooksOf(host: string, disabled: boolean): Promise<Webhook[]> {
  const out: Webhook[] = [];
  let before: string | undefined;
  do {
    const page = await get("/webhooks", {
      query: { host, ...(disabled ? { disabled } : { failing: true }), before, limit: 500 },
    });
    out.push(...page.webhooks.filter((w) => disabled || !w.disabled_at));
    before = page.next;
  } while (before);
  return out;
}

function Act({ host, action, onClose }: { host: LagHost; action: Action; onClose: () => void }) {
  const client = useQueryClient();
  const [{ done, of }, setProgress] = useState({ done: 0, of: 0 });
  const text = texts[action];
  const act = async (reason: string) => {
    const hooks = await webhooksOf(host.host, action === "enable" || (action === "test" && host.failing === 0));
    if (action === "test") {
      const url = hooks[0]?.url;
      if (!url) throw new Error("The receiver has no such webhook any more.");
      const did = await post("/webhooks/test", { body: { reason, url } });
      toast(
        did.error ? `Not accepted: ${did.class} ${did.status ?? ""}` : `Accepted with ${did.status}`,
        `${visible(did.error ?? "")} after ${duration(did.took_ms)}`,
      );
      return;
    }
    setProgress({ done: 0, of: hooks.length });
    const one = (w: Webhook) => {
      const call = { path: { id: w.id, config: w.config_id }, body: { reason } };
      switch (action) {
        case "redeliver":
          return post("/tasks/{id}/webhooks/{config}/redeliver", call);
        case "enable":
          return post("/tasks/{id}/webhooks/{config}/enable", call);
        case "disable":
          return post("/tasks/{id}/webhooks/{config}/disable", call);
      }
    };
    try {
      await each(
        hooks,
        (w) => w.task_id,
        (w) => one(w).finally(() => setProgress((p) => ({ ...p, done: p.done + 1 }))),
      );
    } finally {
      for (const key of ["webhooks", "attempts", "lags"]) void client.invalidateQueries({ queryKey: [key] });
    }
    toast(`${plural(hooks.length, "webhook")} ${text.done}`);
  };
  return (
    <Confirm
      open
      onClose={onClose}
      title={`${text.verb}: ${visible(host.host)}`}
      verb={text.verb}
      danger={action === "disable"}
      act={act}
    >
      <p>{text.help}</p>
      {of > 0 && <Progress label="Progress" total={of} parts={[{ name: "done", value: done, tone: "good" }]} />}
    </Confirm>
  );
}
