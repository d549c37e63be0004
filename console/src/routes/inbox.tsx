import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError, post } from "../api/client";
import { useLive } from "../api/live";
import type { TaskDetail } from "../api/schema";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Live } from "../components/Live";
import { Page } from "../components/Page";
import { Panel } from "../components/Panel";
import { Time } from "../components/Time";
import { toast } from "../components/Toast";
import { AnswerForm } from "../conversation/AnswerForm";
import { questionOf } from "../conversation/form";
import { Parts } from "../conversation/Parts";
import { member, partsOf } from "../conversation/types";
import { useActRefusal } from "../layout/me";
import { most, useInbox } from "../lib/inbox";
import { visible } from "../lib/text";
import "./inbox.css";

const asking = ["input-required", "auth-required"] as const;

/** InboxPage has every question that an agent asks, of all agents, to answer in place. */
export function InboxPage() {
  const { data, error, refetch } = useInbox();
  const client = useQueryClient();
  const state = useLive("/tasks/stream", { state: asking }, "", {
    events: ["task"],
    on: () => void client.invalidateQueries({ queryKey: ["inbox"] }),
  });
  return (
    <Page title="Inbox" actions={<Live state={state} />}>
      {error && <ErrorBox error={error} retry={() => refetch()} />}
      {!data && !error && <p className="muted">Loading…</p>}
      {data?.tasks.length === 0 && (
        <EmptyState guide="questions" title="Nobody waits for an answer">
          A task appears here when its agent asks its client for input or a login. You answer in the client’s name.
        </EmptyState>
      )}
      <div className="inbox">
        {data?.tasks.map((task) => (
          // A task may ask again.
          <Question key={`${task.id} ${task.status_at}`} task={task} />
        ))}
      </div>
      {data?.next && (
        <p className="muted">These are the questions of the newest {most} tasks. Answer some to see older ones.</p>
      )}
    </Page>
  );
}

function Question({ task }: { task: TaskDetail }) {
  const client = useQueryClient();
  const refusal = useActRefusal();
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const parts = partsOf(member(task.status_message, "parts"));
  const data = parts.filter((p) => p.kind === "data");
  const { form, choices } = questionOf(data);
  const words = form || choices ? parts.filter((p) => p.kind !== "data") : parts;
  const send = async (answer: { text: string } | { data: unknown }) => {
    setBusy(true);
    setError(undefined);
    try {
      await post("/tasks/{id}/answer", {
        path: { id: task.id },
        body: { reason: "answers the question of the agent", parts: [answer] },
        // Of two people who answer one question, the second learns that the first has done it.
        idempotencyKey: `question ${task.id} ${task.status_at}`,
      });
      toast(`${task.agent} has its answer`, "The task continues.");
      for (const key of ["inbox", "task", "tasks"]) void client.invalidateQueries({ queryKey: [key] });
    } catch (failed) {
      setError(failed);
      void client.invalidateQueries({ queryKey: ["inbox"] });
      setBusy(false);
    }
  };
  return (
    <Panel
      title={
        <Link to="/agents/$name" params={{ name: task.agent }}>
          {visible(task.agent)}
        </Link>
      }
      note={
        <>
          <Badge state={task.state} /> asks {visible(task.owner || "an anonymous client")}
          {task.tenant && ` of ${visible(task.tenant)}`} · <Time at={task.status_at} />
        </>
      }
      actions={
        <Link to="/tasks/$id" params={{ id: task.id }}>
          Open the conversation
        </Link>
      }
    >
      {words.length > 0 ? <Parts parts={words} markdown /> : !form && <p className="muted">The agent asks without words.</p>}
      {refusal ? (
        <p className="muted">{refusal}</p>
      ) : (
        // A fieldset that is disabled takes no second answer.
        <fieldset className="inbox-answer" disabled={busy}>
          <legend className="visually-hidden">Answer</legend>
          <AnswerForm
            parts={data}
            state={task.state}
            onSend={([part]) => {
              if (part?.kind === "data") void send({ data: part.data });
              else if (part?.kind === "text") void send({ text: part.text });
            }}
          />
          <form
            className="inbox-words"
            onSubmit={(event) => {
              event.preventDefault();
              if (text.trim()) void send({ text });
            }}
          >
            <textarea
              className="input"
              rows={1}
              value={text}
              onChange={(event) => setText(event.target.value)}
              aria-label={`Answer ${visible(task.agent)} in words`}
              placeholder="Answer in words"
            />
            <Button type="submit" kind={form || choices ? "plain" : "primary"} busy={busy}>
              Answer
            </Button>
          </form>
        </fieldset>
      )}
      {error !== undefined && <ErrorBox error={error} title={late(error) ? "Somebody has answered already" : "Not answered"} />}
    </Panel>
  );
}

/** late says that the task has gone on, or has another answer to this question. */
function late(error: unknown): boolean {
  return error instanceof ApiError && (error.problem.status === 409 || error.problem.detail?.includes("already used") === true);
}
