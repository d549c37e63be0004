import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Search } from "../lib/search";
import { seen, visible } from "../lib/text";
import "./Panel.css";

/** Panel is a part of a page with a heading. */
export function Panel({
  title,
  note,
  actions,
  children,
}: {
  title: ReactNode;
  note?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  return (
    <section className="panel">
      <header className="panel-head">
        <h2>{title}</h2>
        {note && <div className="panel-note muted">{note}</div>}
        {actions && <div className="panel-actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

export interface Tile {
  name: string;
  value: ReactNode;
  /** note is a line below the value. */
  note?: ReactNode;
  tone?: "warn" | "bad";
  /** search selects the tasks that the number counts. */
  search?: Search;
}

/** Tiles are numbers beside each other. */
export function Tiles({ tiles }: { tiles: Tile[] }) {
  return (
    <dl className="tiles">
      {tiles.map((tile) => (
        <div className="tile" key={tile.name} data-tone={tile.tone}>
          <dt>
            {tile.search ? (
              <Link to="/tasks" search={tile.search}>
                {tile.name}
              </Link>
            ) : (
              tile.name
            )}
          </dt>
          <dd className="tile-value">{tile.value}</dd>
          {tile.note && <dd className="tile-note">{tile.note}</dd>}
        </div>
      ))}
    </dl>
  );
}

/** Facts are names with values, below each other. */
export function Facts({ facts }: { facts: [name: string, value: ReactNode][] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{seen(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

export interface Field<T> {
  name: ReactNode;
  cell: (row: T) => ReactNode;
  end?: boolean;
  wrap?: boolean;
}

/** List is a table of few rows. On a narrow screen it scrolls sideways. */
export function List<T>({
  label,
  fields,
  rows,
  id,
}: {
  label: string;
  fields: Field<T>[];
  rows: readonly T[];
  id: (row: T) => string;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
    <section className="list" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {fields.map((f, i) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns keep their places
              <th key={i} scope="col" data-end={f.end || undefined}>
                {f.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {fields.map((f, i) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: see above
                <td key={i} data-end={f.end || undefined} data-wrap={f.wrap || undefined}>
                  {seen(f.cell(row))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Meter shows how much of something is used. */
export function Meter({ label, used, of, text }: { label: string; used: number; of: number; text: string }) {
  const part = of > 0 ? Math.min(1, used / of) : 0;
  return (
    <div className="meter">
      <div className="meter-names">
        <span>{label}</span>
        <span className="muted">{text}</span>
      </div>
      {/* biome-ignore lint/a11y/useSemanticElements: browsers style a meter element each in their own way */}
      <div
        className="meter-bar"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(part * 100)}
        aria-valuetext={text}
        data-tone={part >= 0.95 ? "bad" : part >= 0.8 ? "warn" : undefined}
      >
        <div style={{ width: `${part * 100}%` }} />
      </div>
    </div>
  );
}

/** Choice is one of a few values, beside each other. */
export function Choice<T extends string>({
  label,
  values,
  value,
  onChange,
}: {
  label: string;
  values: readonly (readonly [value: T, name: string])[];
  value: T;
  onChange: (value: T) => void;
}) {
  return (
    <fieldset className="choice" aria-label={label}>
      {values.map(([one, name]) => (
        <button key={one} type="button" aria-pressed={one === value} onClick={() => onChange(one)}>
          {name}
        </button>
      ))}
    </fieldset>
  );
}

/** Hover is a text that its cell may cut: the whole of it shows on hover. */
export function Hover({ text = "", muted }: { text?: string; muted?: boolean }) {
  const shown = visible(text);
  return (
    <span className={muted ? "muted" : undefined} title={shown || undefined}>
      {shown}
    </span>
  );
}

/**
 * Text is content that an agent, a receiver or a caller wrote: always text, whatever it holds. A long one opens; closed, it shows its
 * first and its last line, because the last line of a trace says what failed.
 */
export function Text({ children, lines = 3 }: { children: string; lines?: number }) {
  return children.length > lines * 120 || children.trim().split("\n").length > lines ? (
    <details className="text">
      <summary dir="auto">{visible(ends(children))}</summary>
      <pre dir="auto">{visible(children)}</pre>
    </details>
  ) : (
    <span className="text" dir="auto">
      {visible(children)}
    </span>
  );
}

function ends(text: string): string {
  const lines = text.trim().split("\n");
  const short = (line = "") => (line.length > 160 ? `${line.slice(0, 160)}…` : line);
  return `${short(lines[0])} … ${lines.length > 1 ? short(lines.at(-1)) : ""}`.trim();
}
