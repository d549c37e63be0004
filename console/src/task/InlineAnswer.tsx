import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { State, TaskDetail } from "../api/schema";
import { Button } from "../components/Button";
import { AnswerForm } from "../conversation/AnswerForm";
import type { Answer } from "../conversation/form";
import type { Part } from "../conversation/types";

/** InlineAnswer answers a question below it: with what the question offers, or in words. */
export function InlineAnswer({
  task,
  parts,
  state,
  onSend,
}: {
  task: Pick<TaskDetail, "id" | "agent" | "owner" | "tenant">;
  parts: readonly Part[];
  state: State;
  onSend: (parts: Answer[]) => void;
}) {
  const [text, setText] = useState("");
  const talk = { agent: task.agent, task: task.id, subject: task.owner || undefined, tenant: task.tenant || undefined };
  return (
    <section className="inline-answer" aria-label="Answer">
      <AnswerForm parts={parts} state={state} onSend={onSend} />
      <form
        className="inline-words"
        onSubmit={(event) => {
          event.preventDefault();
          onSend([{ kind: "text", text }]);
        }}
      >
        <textarea
          className="input"
          aria-label="Answer in words"
          placeholder="Answer in words, in the client’s name"
          dir="auto"
          rows={Math.min(8, text.split("\n").length + 1)}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <div className="answer-buttons">
          <Button type="submit" kind="primary" disabled={text.trim() === ""}>
            Answer
          </Button>
          <Link to="/talk" search={talk}>
            Continue in Talk
          </Link>
        </div>
      </form>
    </section>
  );
}
