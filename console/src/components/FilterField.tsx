import { useId, useRef, useState } from "react";
import { format, type Key, keyHelp, keys, parse, type TaskFilter, without } from "../lib/filter";
import { useShortcut } from "../lib/shortcuts";
import { stateNames, states } from "../lib/states";
import { visible } from "../lib/text";
import "./FilterField.css";

/** Suggestions are values that the reader may want, by key. */
export type Suggestions = Partial<Record<Key, readonly string[]>>;

interface Choice {
  text: string;
  help: string;
  /** whole says that it needs no value any more. */
  whole: boolean;
}

const times = ["15m", "1h", "24h", "7d", "30d"];
const fixed: Suggestions = {
  state: states,
  since: times,
  until: times,
  duration: [">10s", ">1m", ">10m", "<1s"],
  has: ["retry"],
  order: ["oldest"],
};

/** split divides what was typed before its last term, which choices complete. */
function split(typed: string): [head: string, last: string] {
  const last = /(?:"[^"]*"?|[^\s"])*$/.exec(typed)?.[0] ?? "";
  return [typed.slice(0, typed.length - last.length), last];
}

function choicesFor(typed: string, suggestions: Suggestions): Choice[] {
  const [, last] = split(typed);
  const match = /^(-?)(\w+):(?:[^,]*,)*(.*)$/.exec(last);
  const key = keys.find((k) => k === match?.[2]);
  if (match && key) {
    const value = (match[3] ?? "").toLowerCase();
    const before = last.slice(0, last.length - value.length);
    const some = (fixed[key] ?? suggestions[key] ?? [])
      .filter((v) => v.toLowerCase().includes(value))
      .slice(0, 12)
      .map((v) => ({
        text: before + (/[\s",]/.test(v) ? `"${v}"` : v),
        help: key === "state" ? stateNames[v as keyof typeof stateNames] : "",
        whole: true,
      }));
    if (some.length > 0 || value) return some;
    const none = key === "owner" || key === "tenant";
    return [{ text: last, help: none ? `tasks without ${key}` : keyHelp[key], whole: none }];
  }
  const minus = last.startsWith("-") ? "-" : "";
  const lower = last.slice(minus.length).toLowerCase();
  const out: Choice[] = keys
    .filter((k) => k.startsWith(lower))
    .map((k) => ({ text: `${minus}${k}:`, help: minus ? `without: ${keyHelp[k]}` : keyHelp[k], whole: false }));
  if (last) {
    for (const s of states) if (s.startsWith(lower)) out.push({ text: `${minus}state:${s}`, help: stateNames[s], whole: true });
    for (const a of suggestions.agent ?? [])
      if (a.toLowerCase().startsWith(lower)) out.push({ text: `${minus}agent:${a}`, help: "", whole: true });
    if (!minus) {
      out.push({ text: `text:"${last.replaceAll('"', "")}"`, help: "tasks of which a message says this", whole: true });
      out.push({ text: `id:${last}`, help: "the task with this id", whole: true });
    }
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
  const take = (text: string) => {
    const next = parse(filter, text, Date.now());
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
    const text = split(typed)[0] + choice.text;
    setAt(-1);
    if (choice.whole) take(text);
    else setTyped(text);
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
        {filter.map((t) => {
          const shown = visible(t.value) || "(none)";
          const name = t.not ? `-${t.key}` : t.key;
          return (
            <span key={format(t)} className="filter-token" data-not={t.not || undefined}>
              <span className="filter-name">{name}</span>
              <span className="filter-value">{shown}</span>
              <button
                type="button"
                aria-label={`Remove ${name} ${shown}`}
                onClick={() => {
                  onChange(without(filter, t));
                  input.current?.focus();
                }}
              >
                ×
              </button>
            </span>
          );
        })}
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
          placeholder={
            filter.length === 0 ? "Filter: state:failed agent:weather -owner:bot duration:>30s, or words of a message" : ""
          }
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
              const last = filter.at(-1);
              if (last) onChange(without(filter, last));
            }
          }}
        />
        {filter.length === 0 && typed === "" && <kbd>/</kbd>}
        {filter.length > 0 && (
          <button type="button" className="filter-clear" onClick={() => onChange([])}>
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
