import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { Button } from "../components/Button";
import { Command } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { GuideLink } from "../components/GuideLink";
import { Panel } from "../components/Panel";
import { Tabs } from "../components/Tabs";
import { useActRefusal } from "../layout/me";
import { visible } from "../lib/text";
import { talks as query } from "./copy";
import { demoScripts, samples, survivor } from "./samples";
import { say, setupOf, start } from "./store";
import "./First.css";

/** First shows what there is to do on a server without tasks. */
export function First() {
  const { data: talks, error } = useQuery(query);
  const refusal = useActRefusal();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [sent, setSent] = useState(false);
  const [tab, setTab] = useState(samples[0]?.name ?? "");
  if (error) return <ErrorBox error={error} />;
  if (!talks) return <p className="muted">Loading…</p>;

  const agent = talks.agents.find((a) => a.default) ?? talks.agents[0];
  const demo = talks.agents.find((a) => a.kind === "demo");
  const may = talks.available && refusal === "";
  const send = (to: string, text: string) => {
    const saying = say(start(setupOf(talks, { agent: to })), [{ kind: "text", text }]);
    void saying.finally(() => queries.invalidateQueries());
  };
  return (
    <section className="first panels" aria-label="First steps">
      {may && agent && (
        <Panel title="Say hello" note={`to the agent ${visible(agent.name)}`}>
          {agent.schemes.length > 0 ? (
            <p>
              Its callers show who they are: <Link to="/talk">name one in Talk</Link>.
            </p>
          ) : (
            <form
              className="first-hello"
              onSubmit={(event) => {
                event.preventDefault();
                const text = String(new FormData(event.currentTarget).get("message") ?? "").trim();
                if (!text) return;
                send(agent.name, text);
                setSent(true);
              }}
            >
              <input className="input" name="message" aria-label="Message" defaultValue="hello" autoComplete="off" />
              <Button type="submit" kind="primary">
                Send
              </Button>
            </form>
          )}
          {sent && (
            <p role="status">
              Sent. <Link to="/talk">See the conversation</Link>
            </p>
          )}
          {demo?.schemes.length === 0 && (
            <ul className="first-scripts">
              {demoScripts.map(([script, does]) => (
                <li key={script}>
                  <Button
                    onClick={() => {
                      send(demo.name, script);
                      void navigate({ to: "/talk" });
                    }}
                  >
                    <code>{script}</code>
                  </Button>
                  <span className="muted">{does}</span>
                </li>
              ))}
            </ul>
          )}
        </Panel>
      )}
      {may && demo && (
        <Panel title="See it survive" note="a server that dies in the middle of an answer">
          <ol>
            <li>
              Send a stream of 60 chunks:{" "}
              <Link to="/talk" search={{ agent: demo.name, say: survivor }}>
                open it in Talk
              </Link>
              .
            </li>
            <li>
              While it streams, kill the server, and every other Holdfast of this machine, in a terminal:
              <Command text="pkill -KILL -x holdfast" />
            </li>
            <li>
              Start it again with the command that you started it with. Another run goes on behind the last stored chunk as soon
              as the dead one’s lease has expired, and Talk counts that every event came once.
            </li>
          </ol>
        </Panel>
      )}
      <Panel title="Your agent" note="the smallest one; holdfast init writes a project with a test">
        <Tabs
          label="Languages"
          value={tab}
          onChange={setTab}
          tabs={samples.map((s) => ({
            id: s.name,
            name: s.name,
            content: (
              <div className="first-sample">
                <Command text={s.code} />
                <p>
                  Save it as <code>{s.file}</code>. With a server of its own, which starts it again when you save:
                </p>
                <Command text={s.dev} />
                {s.here && talks.url && (
                  <>
                    <p>
                      At this server, if its configuration has <code>{"{name: hello, executor: {kind: worker}}"}</code>:
                    </p>
                    <Command text={`HOLDFAST_URL=${talks.url} ${s.here}`} />
                  </>
                )}
              </div>
            ),
          }))}
        />
        <GuideLink guide="start" />
      </Panel>
    </section>
  );
}
