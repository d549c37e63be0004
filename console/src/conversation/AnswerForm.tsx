import { type FormEvent, useId, useMemo, useState } from "react";
import type { State } from "../api/schema";
import { Button } from "../components/Button";
import {
  type Answer,
  answerOf,
  approves,
  complaint,
  type Field,
  type Form,
  initial,
  questionOf,
  type Value,
  type Values,
} from "./form";
import type { Part } from "./types";
import "./AnswerForm.css";

/** AnswerForm offers what the question of an agent offers: a form, choices, or yes and no. */
export function AnswerForm({
  parts,
  state,
  onSend,
}: {
  parts: readonly Part[];
  state: State | undefined;
  onSend: (parts: Answer[]) => void;
}) {
  const question = useMemo(() => questionOf(parts), [parts]);
  const { form, choices } = question;
  const only = form && approves(form);
  if (form && only) {
    const answer = (yes: boolean) => onSend([{ kind: "data", data: { [only.name]: yes } }]);
    return (
      <div className="answer answer-row">
        <span className="answer-title" dir="auto">
          {only.title}
          {only.description && <span className="muted"> {only.description}</span>}
        </span>
        <Button kind="primary" onClick={() => answer(true)}>
          Approve
        </Button>
        <Button onClick={() => answer(false)}>Decline</Button>
      </div>
    );
  }
  if (form) return <Fields form={form} onSend={onSend} />;
  if (choices) {
    return (
      <fieldset className="answer answer-row">
        <legend className="visually-hidden">Answers to choose from</legend>
        {choices.map((c) => (
          <Button key={c.value} onClick={() => onSend([{ kind: "text", text: c.value }])}>
            {c.title}
          </Button>
        ))}
      </fieldset>
    );
  }
  if (question.unusable) {
    return (
      <p className="answer muted">
        The question has a schema that is no form: {question.unusable}. Answer with data, or in words.
      </p>
    );
  }
  if (state === "auth-required") {
    return (
      <div className="answer answer-row">
        <span className="answer-title">The agent waits until you have signed in elsewhere.</span>
        <Button kind="primary" onClick={() => onSend([{ kind: "text", text: "done" }])}>
          I have done it
        </Button>
      </div>
    );
  }
  return null;
}

function Fields({ form, onSend }: { form: Form; onSend: (parts: Answer[]) => void }) {
  const [values, setValues] = useState<Values>(() => initial(form));
  const [tried, setTried] = useState(false);
  const submit = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault();
    setTried(true);
    const bad = form.fields.find((f) => complaint(f, values[f.name] ?? f.initial));
    if (bad) {
      const at = e.currentTarget.elements.namedItem(bad.name);
      (at instanceof RadioNodeList ? (at[0] as HTMLElement | undefined) : (at as HTMLElement | null))?.focus();
      return;
    }
    onSend([{ kind: "data", data: answerOf(form, values) }]);
  };
  return (
    <form className="answer answer-form" onSubmit={submit} noValidate aria-label={form.title ?? "Answer"}>
      {form.title && <h2 dir="auto">{form.title}</h2>}
      {form.description && (
        <p className="muted" dir="auto">
          {form.description}
        </p>
      )}
      <div className="answer-fields">
        {form.fields.map((f) => (
          <Input
            key={f.name}
            f={f}
            value={values[f.name] ?? f.initial}
            tried={tried}
            onChange={(v) => setValues({ ...values, [f.name]: v })}
          />
        ))}
      </div>
      <div className="answer-buttons">
        <Button kind="primary" type="submit">
          Send the answer
        </Button>
        <span className="muted">Or answer in words below.</span>
      </div>
    </form>
  );
}

const inputTypes: Record<string, string> = { email: "email", uri: "url", date: "date" };

function Input({ f, value, tried, onChange }: { f: Field; value: Value; tried: boolean; onChange: (v: Value) => void }) {
  const id = useId();
  const [left, setLeft] = useState(false);
  const bad = tried || left ? complaint(f, value) : "";
  const described = [f.description ? `${id}-about` : "", bad ? `${id}-bad` : ""].filter(Boolean).join(" ") || undefined;
  const shared = {
    id,
    name: f.name,
    dir: "auto",
    required: f.required,
    "aria-invalid": bad ? true : undefined,
    "aria-describedby": described,
    onBlur: () => setLeft(true),
  };
  const about = (
    <>
      {f.description && (
        <small id={`${id}-about`} className="muted">
          {f.description}
        </small>
      )}
      {bad && (
        <small id={`${id}-bad`} className="answer-bad" role="alert">
          {bad}
        </small>
      )}
    </>
  );
  if (f.type === "boolean") {
    return (
      <div className="answer-field answer-check">
        <label htmlFor={id}>
          <input
            {...shared}
            required={false}
            type="checkbox"
            checked={value === true}
            onChange={(e) => onChange(e.target.checked)}
          />
          {f.title}
        </label>
        {about}
      </div>
    );
  }
  if (f.type === "choices") {
    const chosen = value as string[];
    return (
      <fieldset className="answer-field" aria-describedby={described}>
        <legend>
          {f.title}
          <Need f={f} />
        </legend>
        {f.options?.map((o) => (
          <label key={o.value} className="answer-option">
            <input
              type="checkbox"
              name={f.name}
              checked={chosen.includes(o.value)}
              onBlur={() => setLeft(true)}
              onChange={(e) => onChange(e.target.checked ? [...chosen, o.value] : chosen.filter((v) => v !== o.value))}
            />
            {o.title}
          </label>
        ))}
        {about}
      </fieldset>
    );
  }
  const change = (e: { target: { value: string } }) => onChange(e.target.value);
  const long = f.type === "string" && !f.format && (f.maxLength ?? 0) > 200;
  return (
    <div className="answer-field">
      <label htmlFor={id}>
        {f.title}
        <Need f={f} />
      </label>
      {f.type === "choice" ? (
        <select {...shared} className="input" value={value as string} onChange={change}>
          <option value="">{f.required ? "Choose…" : "None"}</option>
          {f.options?.map((o) => (
            <option key={o.value} value={o.value}>
              {o.title}
            </option>
          ))}
        </select>
      ) : long ? (
        <textarea {...shared} className="input" rows={3} value={value as string} onChange={change} />
      ) : (
        <input
          {...shared}
          className="input"
          type={inputTypes[f.format ?? ""] ?? "text"}
          inputMode={f.type === "integer" ? "numeric" : f.type === "number" ? "decimal" : undefined}
          placeholder={f.format === "date-time" ? "2026-05-03T14:30:00Z" : undefined}
          autoComplete="off"
          value={value as string}
          onChange={change}
        />
      )}
      {about}
    </div>
  );
}

function Need({ f }: { f: Field }) {
  return f.required ? null : <span className="muted answer-optional"> optional</span>;
}
