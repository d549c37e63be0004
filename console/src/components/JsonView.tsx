import { useState } from "react";
import { formatJson, keyOf, LosslessNumber } from "../api/json";
import { start, visible } from "../lib/text";
import { Copy } from "./Copy";
import "./JsonView.css";

/** JsonView shows JSON with its own digits and order. What it shows is text and never markup. */
export function JsonView({ value, open = 2 }: { value: unknown; open?: number }) {
  return (
    <div className="json">
      <div className="json-copy">
        <Copy text={formatJson(value)} label="Copy the JSON" />
      </div>
      <Node value={value} depth={0} open={open} />
    </div>
  );
}

function Node({ name, value, depth, open }: { name?: string; value: unknown; depth: number; open: number }) {
  const [shown, setShown] = useState(depth < open);
  const label = name === undefined ? null : <span className="json-key">{visible(JSON.stringify(name))}: </span>;
  if (value === null || typeof value !== "object" || value instanceof LosslessNumber) {
    return (
      <div className="json-line">
        {label}
        <Leaf value={value} />
      </div>
    );
  }
  const list = Array.isArray(value);
  const entries: [string, unknown][] = list ? value.map((one, i) => [String(i), one]) : Object.entries(value);
  const [begin, end] = list ? "[]" : "{}";
  if (entries.length === 0) {
    return (
      <div className="json-line">
        {label}
        {begin}
        {end}
      </div>
    );
  }
  return (
    <div className="json-node">
      <button type="button" className="json-toggle" aria-expanded={shown} onClick={() => setShown(!shown)}>
        {label}
        {begin}
        {!shown && (
          <span className="json-more">
            {entries.length} {list ? "item" : "member"}
            {entries.length === 1 ? "" : "s"} {end}
          </span>
        )}
      </button>
      {shown && (
        <>
          <div className="json-children">
            {entries.map(([key, one]) => (
              <Node key={key} name={list ? undefined : keyOf(key)} value={one} depth={depth + 1} open={open} />
            ))}
          </div>
          <div className="json-line">{end}</div>
        </>
      )}
    </div>
  );
}

const long = 2000;

function Leaf({ value }: { value: unknown }) {
  const [all, setAll] = useState(false);
  if (typeof value === "string") {
    const cut = !all && value.length > long;
    return (
      <span className="json-string">
        {visible(JSON.stringify(cut ? start(value, long) : value))}
        {cut && (
          <button type="button" className="json-toggle" onClick={() => setAll(true)}>
            … {value.length - long} more characters
          </button>
        )}
      </span>
    );
  }
  const text = value instanceof LosslessNumber ? value.value : String(value);
  return <span className={typeof value === "boolean" || value === null ? "json-word" : "json-number"}>{text}</span>;
}
