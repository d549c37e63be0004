import { lazy, type ReactNode, Suspense, useDeferredValue, useEffect, useMemo, useState } from "react";
import { LosslessNumber } from "../api/json";
import { JsonView } from "../components/JsonView";
import { BlockedImage, Markdown, Outward } from "../components/Markdown";
import { Scroll } from "../components/Scroll";
import { csv, hostOf, line, size, start, visible } from "../lib/text";
import { questionOf } from "./form";
import { isDict, type Part } from "./types";
import "./Parts.css";

const PdfView = lazy(() => import("./PdfView"));

/** files returns the address of a part on this server, from where a browser may load it. */
export type Files = (part: number) => string | undefined;

/** Parts shows the parts of a message or of an artifact. Everything in them is hostile: it is text, or a medium that cannot act. */
export function Parts({
  parts,
  markdown,
  asks,
  files,
}: {
  parts: readonly Part[];
  /** markdown says that plain text is Markdown: most agents write it, also where they do not say so. */
  markdown?: boolean;
  /** asks says that they are a question: what AnswerForm shows as a form is closed here. */
  asks?: boolean;
  files?: Files;
}) {
  const [shown, setShown] = useState(50);
  return (
    <div className="parts">
      {parts.slice(0, shown).map((part, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts are only appended
        <PartView key={i} part={part} markdown={markdown} asks={asks} file={files?.(i)} />
      ))}
      {parts.length > shown && (
        <button type="button" className="link-button" onClick={() => setShown(shown + 50)}>
          {parts.length - shown} more parts
        </button>
      )}
    </div>
  );
}

function PartView({
  part,
  markdown,
  asks,
  file,
}: {
  part: Part;
  markdown?: boolean;
  asks?: boolean;
  file: string | undefined;
}) {
  let content: ReactNode;
  if (part.kind === "text") content = <TextPart part={part} markdown={markdown} file={file} />;
  else if (part.kind === "data" && asks && offers(part)) content = <Metadata value={part.data} label="as JSON" />;
  else if (part.kind === "data") content = <DataPart part={part} file={file} />;
  else if (part.kind === "url") content = <UrlPart part={part} />;
  else content = <FilePart part={part} file={file} />;
  return (
    <div className="part">
      {part.filename && part.kind !== "raw" && (
        <div className="part-name" dir="auto">
          {visible(start(part.filename, 300))}
        </div>
      )}
      {content}
    </div>
  );
}

/** offers says whether AnswerForm shows a part of a question as a form or as buttons. */
function offers(part: Part): boolean {
  const q = questionOf([part]);
  return q.form !== undefined || q.choices !== undefined;
}

const firstText = 20_000;

function TextPart({ part, markdown, file }: { part: Part; markdown?: boolean; file: string | undefined }) {
  const [plain, setPlain] = useState(false);
  const [all, setAll] = useState(false);
  const text = useDeferredValue(part.text ?? ""); // text that grows is parsed when there is time
  const media = part.mediaType ?? "";
  const isCsv = media === "text/csv" || media === "text/tab-separated-values";
  const table = useMemo(
    () => (isCsv && !plain ? csv(start(text, 500_000), 500, media === "text/csv" ? "," : "\t") : undefined),
    [isCsv, plain, text, media],
  );
  const asMarkdown = media === "text/markdown" || (markdown && (media === "" || media === "text/plain"));
  const code = media !== "" && !isCsv && !asMarkdown && media !== "text/plain";
  const cut = !all && text.length > firstText;
  const shown = cut ? start(text, firstText) : text;
  const special = table !== undefined || (asMarkdown && looksLikeMarkdown(text));
  return (
    <>
      {table && !plain ? (
        <Table head={table[0] ?? []} rows={table.slice(1).map((r) => r.map((c) => visible(start(c, 500))))} />
      ) : asMarkdown && !plain ? (
        <Markdown text={shown} />
      ) : code ? (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
        <pre className="part-code" tabIndex={0}>
          {visible(shown)}
        </pre>
      ) : (
        <p className="part-text" dir="auto">
          {visible(shown)}
        </p>
      )}
      {(special || cut || part.cut) && (
        <div className="part-tools">
          {special && (
            <button type="button" className="link-button" onClick={() => setPlain(!plain)}>
              {plain ? (table || isCsv ? "as a table" : "as Markdown") : "as text"}
            </button>
          )}
          {cut && !table && (
            <button type="button" className="link-button" onClick={() => setAll(true)}>
              show all {text.length.toLocaleString("en")} characters{part.cut ? " that are here" : ""}
            </button>
          )}
          {part.cut && (
            <span className="muted">
              The text has {size(part.bytes)}; the page shows its beginning. {file ? "Download it for the rest." : ""}
            </span>
          )}
          {file && (cut || part.cut) && <Download href={file} bytes={part.bytes} />}
        </div>
      )}
    </>
  );
}

function looksLikeMarkdown(text: string): boolean {
  return /(^|\n)\s{0,3}(#{1,6} |[-*+] |\d+\. |> |```|\|)|[*_`]\S|\]\(/.test(start(text, firstText));
}

function DataPart({ part, file }: { part: Part; file: string | undefined }) {
  const [raw, setRaw] = useState(false);
  const table = useMemo(() => tableOf(part.data), [part.data]);
  if (part.cut) {
    return (
      <p className="part-tools">
        <span className="muted">Data of {size(part.bytes)}, which the page does not load.</span>
        {file && <Download href={file} bytes={part.bytes} />}
      </p>
    );
  }
  return (
    <>
      {table && !raw ? (
        <Table head={table.head} rows={table.rows} more={table.more} />
      ) : (
        <JsonView value={part.data} open={2} />
      )}
      {table && (
        <div className="part-tools">
          <button type="button" className="link-button" onClick={() => setRaw(!raw)}>
            {raw ? "as a table" : "as JSON"}
          </button>
        </div>
      )}
    </>
  );
}

const mostRows = 200;
const mostColumns = 30;

/** tableOf makes a table of a list of objects, if they have something in common. */
export function tableOf(data: unknown): { head: string[]; rows: string[][]; more: number } | undefined {
  if (!Array.isArray(data) || data.length < 2 || !data.slice(0, mostRows).every(isDict)) return undefined;
  const rows = data.slice(0, mostRows) as Record<string, unknown>[];
  const counts = new Map<string, number>();
  for (const row of rows) for (const key of Object.keys(row)) counts.set(key, (counts.get(key) ?? 0) + 1);
  if (counts.size === 0 || counts.size > mostColumns) return undefined;
  if (![...counts.values()].some((n) => n > rows.length / 2)) return undefined;
  const keys = [...counts.keys()];
  return {
    head: keys.map((k) => visible(start(k.replace(/^\u2063/, ""), 100))),
    rows: rows.map((row) => keys.map((k) => (Object.hasOwn(row, k) ? cell(row[k]) : ""))),
    more: data.length - rows.length,
  };
}

function cell(value: unknown): string {
  if (value instanceof LosslessNumber) return value.value;
  if (typeof value === "string") return visible(start(value, 500));
  if (Array.isArray(value)) return `[${value.length}]`;
  if (isDict(value)) return `{${Object.keys(value).length}}`;
  return String(value);
}

function Table({ head, rows, more = 0 }: { head: readonly string[]; rows: readonly string[][]; more?: number }) {
  const [shown, setShown] = useState(20);
  return (
    <Scroll className="part-table" label="Table">
      <table>
        <thead>
          <tr>
            {head.slice(0, mostColumns).map((h, i) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns have no other name
              <th key={i} scope="col">
                {visible(h)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map((row, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other name
            <tr key={i}>
              {row.slice(0, mostColumns).map((c, k) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: see above
                <td key={k} dir="auto">
                  {c}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown && (
        <button type="button" className="link-button" onClick={() => setShown(shown + 100)}>
          {rows.length - shown + more} more rows
        </button>
      )}
      {rows.length <= shown && more > 0 && <span className="muted">{more} more rows are in the JSON.</span>}
    </Scroll>
  );
}

function UrlPart({ part }: { part: Part }) {
  if (!part.url) return <p className="muted">A file without content.</p>;
  if (part.mediaType?.startsWith("image/")) return <BlockedImage src={part.url} alt={part.filename} />;
  return hostOf(part.url) ? (
    <Outward href={part.url}>{line(part.url, 200)}</Outward>
  ) : (
    <span className="part-text">{line(part.url, 400)} (no web address)</span>
  );
}

/** mostInline bounds a file that the page decodes itself, in bytes. */
const mostInline = 8 << 20;

function FilePart({ part, file }: { part: Part; file: string | undefined }) {
  const own = useBlob(file ? undefined : part.raw, part.bytes);
  const source = file ?? own;
  const media = (part.mediaType ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  const name = visible(start(part.filename ?? "", 200)) || "file";
  const [broken, setBroken] = useState(false);
  const [open, setOpen] = useState(false);
  const failed = () => setBroken(true);
  // The server guards an SVG of an artifact. One of a message would be a document of this origin, so it is only a file.
  const kind = media.startsWith("image/svg") && !file ? "" : media.split("/")[0];
  return (
    <figure className="part-file">
      {source && !broken && kind === "image" && (
        <img src={source} alt={name} loading="lazy" decoding="async" onError={failed} />
      )}
      {source && !broken && kind === "audio" && (
        // biome-ignore lint/a11y/useMediaCaption: the agent gives none
        <audio controls preload="none" src={source} onError={failed} aria-label={name} />
      )}
      {source && !broken && kind === "video" && (
        // biome-ignore lint/a11y/useMediaCaption: the agent gives none
        <video controls preload="none" src={source} onError={failed} aria-label={name} />
      )}
      {file && media === "application/pdf" && open && (
        <Suspense fallback={<p className="muted">Loading…</p>}>
          <PdfView source={file} name={name} />
        </Suspense>
      )}
      <figcaption>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M4 1.5h5l3.5 3.5v9.5h-8.5zM9 1.5V5h3.5" />
        </svg>
        <span className="part-file-name">{name}</span>
        <span className="muted">
          {media ? `${line(media, 60)} · ` : ""}
          {size(part.bytes)}
        </span>
        {broken && <span className="part-broken">It is no {kind} that this browser shows.</span>}
        {file && media === "application/pdf" && (
          <button type="button" className="link-button" onClick={() => setOpen(!open)}>
            {open ? "hide" : "view"}
          </button>
        )}
        {source ? (
          <Download href={source} name={part.filename ?? "file"} />
        ) : (
          <span className="muted">too large for the page</span>
        )}
      </figcaption>
    </figure>
  );
}

function Download({ href, name, bytes }: { href: string; name?: string; bytes?: number }) {
  return (
    <a className="link-button" href={href} download={name === undefined ? true : (name.split(/[/\\]/).at(-1) ?? true)}>
      download{bytes ? ` (${size(bytes)})` : ""}
    </a>
  );
}

/** useBlob makes an address of a file of a message. Its type is one that a browser only saves, or shows in an element. */
function useBlob(raw: string | undefined, bytes: number): string | undefined {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (raw === undefined || bytes > mostInline) return;
    let made: string | undefined;
    try {
      const text = atob(raw.replaceAll("-", "+").replaceAll("_", "/"));
      const data = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) data[i] = text.charCodeAt(i);
      made = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
      setUrl(made);
    } catch {
      setUrl(undefined); // not base64
    }
    return () => {
      if (made) URL.revokeObjectURL(made);
    };
  }, [raw, bytes]);
  return url;
}

/** Metadata shows the metadata of a message, closed. */
export function Metadata({ value, label = "metadata" }: { value: unknown; label?: string }) {
  const [open, setOpen] = useState(false);
  if (value === undefined || value === null || (isDict(value) && Object.keys(value).length === 0)) return null;
  return (
    <div className="part-metadata">
      <button type="button" className="link-button" aria-expanded={open} onClick={() => setOpen(!open)}>
        {label}
      </button>
      {open && <JsonView value={value} open={3} />}
    </div>
  );
}
