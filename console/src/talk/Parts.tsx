import { useEffect, useMemo, useState } from "react";
import { JsonView } from "../components/JsonView";
import { visible } from "../lib/text";
import { bytesOf, sizeOf } from "./files";
import { questionOf } from "./form";
import { Prose } from "./Prose";
import type { Part } from "./wire";
import "./Parts.css";

/** Parts shows the parts of a message or an artifact. Agents write them, so nothing in them runs, and nothing is fetched. */
export function Parts({ parts, plain, asks }: { parts: Part[]; plain?: boolean; asks?: boolean }) {
  return (
    <div className="talk-parts">
      {parts.map((p, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts have no identity, and are only appended
        <One key={i} p={p} plain={plain ?? false} closed={asks === true && offers(p)} />
      ))}
    </div>
  );
}

/** offers says whether a part of a question is shown as a form or as buttons. */
function offers(p: Part): boolean {
  const q = questionOf([p]);
  return q.form !== undefined || q.choices !== undefined;
}

function One({ p, plain, closed }: { p: Part; plain: boolean; closed: boolean }) {
  switch (p.kind) {
    case "text":
      return plain ? <p className="talk-text">{visible(p.text)}</p> : <Prose text={p.text} />;
    case "data":
      return <JsonView value={p.data} open={closed ? 0 : 3} />;
    case "file":
      return <FilePart p={p} />;
    case "url":
      return <Remote p={p} />;
  }
}

/** Of these types a browser draws pixels and runs nothing. SVG is not among them. */
const pictures = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const sounds = new Set(["audio/mpeg", "audio/ogg", "audio/wav", "audio/webm", "audio/mp4", "audio/flac"]);

function FilePart({ p }: { p: Extract<Part, { kind: "file" }> }) {
  const bytes = useMemo(() => bytesOf(p.base64), [p.base64]);
  const media = (p.media ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  const shown = pictures.has(media) || sounds.has(media) ? media : "application/octet-stream";
  const [url, setUrl] = useState<string | undefined>();
  useEffect(() => {
    if (!bytes) return;
    const made = URL.createObjectURL(new Blob([bytes], { type: shown }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [bytes, shown]);
  const name = visible(p.name || "file");
  if (!bytes) return <p className="talk-file muted">{name}: the agent sent no valid base64</p>;
  return (
    <div className="part-media">
      {url && pictures.has(media) && <img src={url} alt={name} />}
      {url && sounds.has(media) && (
        // biome-ignore lint/a11y/useMediaCaption: the agent sends none
        <audio src={url} controls aria-label={name} />
      )}
      <a className="talk-file" href={url} download={name}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M4 2.5h5l3 3v8H4zM9 2.5v3h3" />
        </svg>
        <span className="truncate">{name}</span>
        <span className="muted">
          {media || "no type"} · {sizeOf(bytes.length)}
        </span>
      </a>
    </div>
  );
}

/** Remote is a file elsewhere. The page fetches nothing from there; a person may open it. */
function Remote({ p }: { p: Extract<Part, { kind: "url" }> }) {
  const to = useMemo(() => {
    try {
      const u = new URL(p.url);
      return u.protocol === "https:" || u.protocol === "http:" ? u : undefined;
    } catch {
      return undefined;
    }
  }, [p.url]);
  return (
    <div className="part-remote">
      <span className="muted">File elsewhere, not loaded: </span>
      {to ? (
        <a href={to.href} target="_blank" rel="noopener noreferrer nofollow">
          {visible(p.name ? `${p.name} at ${to.host}` : p.url)}
        </a>
      ) : (
        <code>{visible(p.url)}</code>
      )}
    </div>
  );
}
