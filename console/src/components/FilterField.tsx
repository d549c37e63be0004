import { useId, useRef, useState } from "react";
import type { State } from "../api/schema";
import { add, type Field, fieldHelp, fields, type TaskFilter, without } from "../lib/filter";
import { useShortcut } from "../lib/shortcuts";
import { stateNames, states } from "../lib/states";
import { visible } from "../lib/text";
import "./FilterField.css";

/** Suggestions are values that the reader may want, by field. */
export type Suggestions = Partial<Record<Field, readonly string[]>>;

interface Choice {
  text: string;
  help: string;
  /** whole says that it needs no value any more. */
  whole: boolean;
}

const times = ["15m", "1h", "24h", "7d", "30d"];

function choicesFor(typed: string, suggestions: Suggestions): Choice[] {
  const match = /^(\w+):\s*(.*)$/.exec(typed);
  const field = fields.find((f) => f === match?.[1]);
  if (field) {
    const value = (match?.[2] ?? "").toLowerCase();
    const all: readonly string[] =
      field === "state" ? states : field === "since" || field === "until" ? times : (suggestions[field] ?? []);
    const some = all
      .filter((v) => v.toLowerCase().includes(value))
      .slice(0, 12)
      .map((v) => ({
        text: `${field}:${v}`,
        help: field === "state" ? stateNames[v as keyof typeof stateNames] : "",
        whole: true,
      }));
    if (some.length > 0 || value) return some;
    const none = field === "owner" || field === "tenant";
    return [{ text: `${field}:`, help: none ? `tasks without ${field}` : fieldHelp[field], whole: none }];
  }
  const lower = typed.toLowerCase();
  const out: Choice[] = fields
    .filter((f) => f.startsWith(lower))
    .map((f) => ({ text: `${f}:`, help: fieldHelp[f], whole: false }));
  if (typed) {
    for (const s of states) if (s.startsWith(lower)) out.push({ text: `state:${s}`, help: stateNames[s], whole: true });
    for (const a of suggestions.agent ?? [])
      if (a.toLowerCase().startsWith(lower)) out.push({ text: `agent:${a}`, help: "", whole: true });
    out.push({ text: `text:"${typed}"`, help: "tasks of which a message says this", whole: true });
    out.push({ text: `id:${typed}`, help: "the task with this id", whole: true });
  }
  return out;
}

/** FilterField shows a filter as tokens, and takes more as text. The slash focuses it. */
export function FilterField({
  filter,
  onChange,
  suggestions,
}: {
  filter: TaskFilter;
  onChange: (filter: TaskFilter) => void;
  suggestions: Suggestions;
}) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const [fault, setFault] = useState("");
  useShortcut("/", "Filter", "Lists", () => input.current?.focus());

  const choices = open ? choicesFor(typed, suggestions) : [];
  const tokens = fields.flatMap((name): { name: Field; value: string; state?: State }[] =>
    name === "state"
      ? filter.state.map((s) => ({ name, value: s, state: s }))
      : filter[name] === undefined
        ? []
        : [{ name, value: filter[name] || "(none)" }],
  );
  const take = (text: string) => {
    const next = add(filter, text, Date.now());
    if (typeof next === "string") {
      setFault(next);
      return;
    }
    setTyped("");
    setAt(-1);
    setFault("");
    setOpen(false);
    onChange(next);
  };
  const choose = (choice: Choice) => {
    setAt(-1);
    if (choice.whole) take(choice.text);
    else setTyped(choice.text);
    input.current?.focus();
  };

  return (
    <div className="filter-field">
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a press beside the text goes to the text */}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the text has the focus already */}
      <div className="filter-box" onClick={(event) => event.target === event.currentTarget && input.current?.focus()}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10Zm3.6-1.4L14 14" />
        </svg>
        {tokens.map((t) => (
          <span key={t.name + t.value} className="filter-token">
            <span className="filter-name">{t.name}</span>
            <span className="filter-value">{visible(t.value)}</span>
            <button
              type="button"
              aria-label={`Remove ${t.name} ${visible(t.value)}`}
              onClick={() => {
                onChange(without(filter, t.name, t.state));
                input.current?.focus();
              }}
            >
              ×
            </button>
          </span>
        ))}
        <input
          ref={input}
          value={typed}
          role="combobox"
          aria-label="Filter"
          aria-expanded={choices.length > 0}
          aria-controls={`${id}-list`}
          aria-activedescendant={at >= 0 && at < choices.length ? `${id}-${at}` : undefined}
          aria-autocomplete="list"
          aria-invalid={fault ? true : undefined}
          aria-describedby={fault ? `${id}-fault` : undefined}
          placeholder={tokens.length === 0 ? "Filter by state, agent, owner, time or id" : ""}
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          onFocus={() => setOpen(true)}
          onClick={() => setOpen(true)}
          onBlur={() => setOpen(false)}
          onChange={(event) => {
            setTyped(event.target.value);
            setAt(-1);
            setFault("");
            setOpen(true);
          }}
          onKeyDown={(event) => {
            const choice = choices[at];
            if (event.key === "ArrowDown" || event.key === "ArrowUp") {
              event.preventDefault();
              setOpen(true);
              const n = choices.length;
              if (n > 0) setAt(event.key === "ArrowDown" ? (at + 1) % n : (at - 1 + n) % n);
            } else if (event.key === "Enter" || (event.key === "Tab" && choice)) {
              if (!choice && !typed.trim()) return;
              event.preventDefault();
              if (choice) choose(choice);
              else take(typed);
            } else if (event.key === "Escape") {
              if (typed || open) setTyped("");
              else event.currentTarget.blur();
              setOpen(false);
              setFault("");
            } else if (event.key === "Backspace" && typed === "") {
              const last = tokens.at(-1);
              if (last) onChange(without(filter, last.name, last.state));
            }
          }}
        />
        {tokens.length === 0 && typed === "" && <kbd>/</kbd>}
        {tokens.length > 0 && (
          <button type="button" className="filter-clear" onClick={() => onChange({ state: [] })}>
            Clear
          </button>
        )}
      </div>
      {fault && (
        <p className="filter-fault" id={`${id}-fault`} role="alert">
          {fault}
        </p>
      )}
      <div id={`${id}-list`} role="listbox" aria-label="Suggestions" className="filter-list" hidden={choices.length === 0}>
        {choices.map((choice, i) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys of the text choose it
          <div
            key={choice.text}
            id={`${id}-${i}`}
            role="option"
            tabIndex={-1}
            aria-selected={i === at}
            className="filter-choice"
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => choose(choice)}
          >
            <span className="mono">{visible(choice.text)}</span>
            <span className="muted">{choice.help}</span>
          </div>
        ))}
      </div>
    </div>
  );
}
