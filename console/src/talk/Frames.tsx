import { memo, useEffect, useMemo, useRef, useState } from "react";
import { parseJson } from "../api/json";
import { Button } from "../components/Button";
import { Copy } from "../components/Copy";
import { JsonView } from "../components/JsonView";
import { copyAs, languages, type Target } from "./copy";
import type { Conversation, Frame } from "./store";
import "./Frames.css";

/** Frames are what went over the wire: requests, answers, and each event of a stream with its id. */
export function Frames({ c, target }: { c: Conversation | undefined; target: Target }) {
  const [open, setOpen] = useState<number | undefined>();
  const list = useRef<HTMLUListElement>(null);
  const pinned = useRef(true);
  const count = c?.frames.length ?? 0;
  const newest = c?.frames.at(-1)?.n;
  useEffect(() => {
    if (newest !== undefined && pinned.current && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [newest]);
  return (
    <section className="frames" aria-label="Frames on the wire">
      <header className="frames-head">
        <h2>Wire</h2>
        <span className="muted">
          {count === 0 ? "what clients send and get" : `${count} frames`}
          {c && c.dropped > 0 ? `, ${c.dropped} older ones dropped` : ""}
        </span>
      </header>
      {count === 0 ? (
        <p className="frames-none muted">
          Each request, answer and event will be here as it was sent, with its id. Copy any request as curl, Python or
          TypeScript.
        </p>
      ) : (
        <ul
          ref={list}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
          tabIndex={0}
          aria-label="Frames"
          onScroll={(e) => {
            const at = e.currentTarget;
            pinned.current = at.scrollHeight - at.scrollTop - at.clientHeight < 40;
          }}
        >
          {c?.frames.map((f) => (
            <Row key={f.n} f={f} began={c.began} open={open === f.n} onOpen={setOpen} target={target} />
          ))}
        </ul>
      )}
    </section>
  );
}

const arrows: Record<Frame["kind"], { mark: string; says: string }> = {
  request: { mark: "→", says: "sent" },
  response: { mark: "←", says: "received" },
  event: { mark: "•", says: "event" },
  note: { mark: "!", says: "note" },
};

const Row = memo(function Row({
  f,
  began,
  open,
  onOpen,
  target,
}: {
  f: Frame;
  began: number;
  open: boolean;
  onOpen: (n: number | undefined) => void;
  target: Target;
}) {
  if (f.kind === "note") {
    return (
      <li className="frame" data-kind="note">
        <span className="frame-note">{f.label}</span>
      </li>
    );
  }
  const arrow = arrows[f.kind];
  return (
    <li className="frame" data-kind={f.kind} data-bad={(f.status ?? 0) >= 400 || undefined}>
      <button type="button" className="frame-head" aria-expanded={open} onClick={() => onOpen(open ? undefined : f.n)}>
        <span className="frame-mark" aria-hidden="true">
          {arrow.mark}
        </span>
        <span className="visually-hidden">{arrow.says} </span>
        <span className="frame-label truncate">{f.kind === "event" ? glance(f.text) : f.label}</span>
        {f.id !== undefined && <span className="frame-id">id {f.id}</span>}
        {f.status !== undefined && <span className="frame-status">{f.status}</span>}
        <span className="frame-time">{f.ms === undefined ? `+${((f.at - began) / 1000).toFixed(2)}s` : `${f.ms} ms`}</span>
      </button>
      {open && <Body f={f} target={target} />}
    </li>
  );
});

/** glance says in a word what an event is. */
function glance(text: string): string {
  const artifact = /"artifactUpdate"|"artifact-update"|"artifact":/.test(text);
  const said = /"text":"((?:[^"\\]|\\.){1,60})/.exec(text)?.[1]?.replace(/\\./g, " ");
  if (artifact) return said ? `artifact: ${said}` : "artifact";
  const state = /"state":"(?:TASK_STATE_)?([A-Za-z_-]+)"/.exec(text)?.[1]?.toLowerCase().replaceAll("_", "-");
  const status = /"statusUpdate"|"status-update"|"final":/.test(text);
  if (state) return status ? `status: ${state}` : `task: ${state}`;
  return /"error"/.test(text) ? "error" : said ? `message: ${said}` : "message";
}

const longest = 200_000;

function Body({ f, target }: { f: Frame; target: Target }) {
  const [whole, setWhole] = useState(false);
  const cut = !whole && f.text.length > longest;
  const parsed = useMemo(() => {
    if (cut) return undefined;
    try {
      return { value: parseJson(f.text) };
    } catch {
      return undefined;
    }
  }, [f.text, cut]);
  return (
    <div className="frame-body">
      {f.request && (
        <fieldset className="frame-copy">
          <legend className="muted">Copy as</legend>
          {languages.map((language) => (
            <Copy
              key={language}
              text={copyAs(language, f.request as NonNullable<Frame["request"]>, target)}
              label={`Copy as ${language}`}
            >
              {language}
            </Copy>
          ))}
        </fieldset>
      )}
      {f.headers && (
        <dl className="frame-headers">
          {Object.entries(f.headers).map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {parsed ? (
        <JsonView value={parsed.value} open={6} />
      ) : (
        f.text && <pre className="frame-raw">{cut ? f.text.slice(0, longest) : f.text}</pre>
      )}
      {cut && <Button onClick={() => setWhole(true)}>Show all {f.text.length} characters</Button>}
    </div>
  );
}
