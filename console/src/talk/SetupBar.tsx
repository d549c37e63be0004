import { useQuery } from "@tanstack/react-query";
import { useId, useMemo, useState } from "react";
import { get } from "../api/client";
import type { Talks } from "../api/schema";
import { anonymous, type Caller, type Setup } from "./store";
import { type Binding, bindingNames, bindings, type Version, versions } from "./wire";
import "./SetupBar.css";

/** SetupBar says with which agent, as whom and how a conversation goes on. A begun one keeps its agent and its caller. */
export function SetupBar({
  setup,
  talks,
  begun,
  onChange,
}: {
  setup: Setup;
  talks: Talks;
  begun: boolean;
  onChange: (some: Partial<Setup>) => void;
}) {
  const agent = talks.agents.find((a) => a.name === setup.agent);
  const open = !agent || agent.schemes.length === 0;
  const { version, binding } = setup.speech;
  const [more, setMore] = useState(false);
  const id = useId();
  const caller = (some: Partial<Caller>) => onChange({ caller: { ...setup.caller, ...some } });
  return (
    <div className="setup">
      {begun ? (
        <div className="setup-field">
          <span className="visually-hidden">Agent</span>
          <span className="setup-fixed">{setup.agent}</span>
        </div>
      ) : (
        <div className="setup-field">
          <label htmlFor={`${id}-agent`}>Agent</label>
          <select
            id={`${id}-agent`}
            className="input"
            value={setup.agent}
            onChange={(e) => {
              const next = talks.agents.find((a) => a.name === e.target.value);
              const { reason, tenant } = setup.caller;
              onChange({
                agent: e.target.value,
                caller:
                  next?.schemes.length === 0
                    ? { ...anonymous, reason }
                    : { ...setup.caller, tenant: tenant || (talks.tenant ?? "") },
              });
            }}
          >
            {talks.agents.map((a) => (
              <option key={a.name} value={a.name}>
                {a.name}
                {a.kind === "a2a" ? " (A2A server)" : ""}
              </option>
            ))}
          </select>
        </div>
      )}
      {open || begun ? (
        <div className="setup-field">
          <span>As</span>
          <span
            className="setup-fixed"
            title={open ? "The agent has no scheme, so all of its callers are anonymous." : undefined}
          >
            {open ? "anonymous" : setup.caller.subject}
            {!open && setup.caller.tenant && <span className="muted"> @ {setup.caller.tenant}</span>}
          </span>
        </div>
      ) : (
        <Who setup={setup} tenant={talks.tenant} onChange={caller} />
      )}
      <div className="setup-field">
        <label htmlFor={`${id}-version`} className="visually-hidden">
          Version
        </label>
        <select
          id={`${id}-version`}
          className="input"
          value={version}
          onChange={(e) => {
            const next = e.target.value as Version;
            onChange({ speech: { version: next, binding: bindings(next).includes(binding) ? binding : "jsonrpc" } });
          }}
        >
          {versions.map((v) => (
            <option key={v} value={v}>
              A2A {v}
            </option>
          ))}
        </select>
      </div>
      <div className="setup-field">
        <label htmlFor={`${id}-binding`} className="visually-hidden">
          Binding
        </label>
        <select
          id={`${id}-binding`}
          className="input"
          value={binding}
          onChange={(e) => onChange({ speech: { version, binding: e.target.value as Binding } })}
        >
          {bindings(version).map((b) => (
            <option key={b} value={b}>
              {bindingNames[b]}
            </option>
          ))}
          <option disabled>gRPC</option>
        </select>
      </div>
      <label className="setup-check">
        <input type="checkbox" checked={setup.streaming} onChange={(e) => onChange({ streaming: e.target.checked })} />
        Stream
      </label>
      <button type="button" className="setup-more" aria-expanded={more} onClick={() => setMore(!more)}>
        {more ? "Less" : "More"}
      </button>
      {more && (
        <div className="setup-rest">
          {!open && (
            <label className="setup-field setup-wide">
              <span>Scopes of the caller</span>
              <input
                className="input"
                value={setup.caller.scopes}
                placeholder={agent?.scope ? `the agent needs ${agent.scope}` : "none"}
                onChange={(e) => caller({ scopes: e.target.value })}
              />
              <small className="muted">
                Separated by spaces.{" "}
                {talks.scopes ? `Yours are ${talks.scopes.join(" ")}: you can give no others.` : "You may give any."}
              </small>
            </label>
          )}
          <label className="setup-field setup-wide">
            <span>Reason</span>
            <input
              className="input"
              value={setup.caller.reason}
              maxLength={300}
              placeholder="talk"
              onChange={(e) => caller({ reason: e.target.value })}
            />
            <small className="muted">The audit log keeps it, with your name.</small>
          </label>
          <p className="setup-note muted">
            No browser speaks gRPC. Use <code>holdfast stream --binding grpc</code>.
          </p>
        </div>
      )}
    </div>
  );
}

/** Who names the caller. It suggests the owners of recent tasks. */
function Who({
  setup,
  tenant,
  onChange,
}: {
  setup: Setup;
  tenant: string | undefined;
  onChange: (some: Partial<Caller>) => void;
}) {
  const id = useId();
  const { data } = useQuery({
    queryKey: ["talk", "owners", setup.agent],
    queryFn: ({ signal }) => get("/tasks", { query: { agent: [setup.agent], limit: 100 }, signal }),
    staleTime: 60_000,
  });
  const owners = useMemo(() => {
    const seen = new Map<string, { owner: string; tenant: string }>();
    for (const t of data?.tasks ?? []) if (t.owner) seen.set(`${t.tenant}\n${t.owner}`, { owner: t.owner, tenant: t.tenant });
    return [...seen.values()].slice(0, 20);
  }, [data]);
  return (
    <>
      <label className="setup-field">
        <span>As</span>
        <input
          className="input"
          list={`${id}-owners`}
          value={setup.caller.subject}
          placeholder="caller"
          required
          aria-invalid={setup.caller.subject === "" || undefined}
          autoComplete="off"
          onChange={(e) => {
            const of = owners.filter((o) => o.owner === e.target.value);
            onChange({
              subject: e.target.value,
              ...(of.length === 1 && tenant === undefined ? { tenant: of[0]?.tenant ?? "" } : {}),
            });
          }}
        />
        <datalist id={`${id}-owners`}>
          {owners.map((o) => (
            <option key={`${o.tenant} ${o.owner}`} value={o.owner}>
              {o.tenant}
            </option>
          ))}
        </datalist>
      </label>
      <label className="setup-field">
        <span>Tenant</span>
        <input
          className="input"
          value={setup.caller.tenant}
          placeholder="none"
          readOnly={tenant !== undefined}
          autoComplete="off"
          onChange={(e) => onChange({ tenant: e.target.value })}
        />
      </label>
    </>
  );
}
