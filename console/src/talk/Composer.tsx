import { type ClipboardEvent, type KeyboardEvent, useRef, useState } from "react";
import { parseJson } from "../api/json";
import { Button } from "../components/Button";
import { size } from "../lib/text";
import { type Attachment, partOf } from "./files";
import type { Part } from "./wire";
import "./Composer.css";

/** Composer is where people write: text, files and data. */
export function Composer({
  files,
  onFiles,
  onTake,
  refusal,
  answers,
  words = "",
  onSend,
}: {
  files: Attachment[];
  onFiles: (files: Attachment[]) => void;
  onTake: (list: Iterable<File>) => void;
  /** refusal says why nothing can be sent now. */
  refusal: string;
  answers: boolean;
  /** words are in the field at first. */
  words?: string;
  onSend: (parts: Part[]) => void;
}) {
  const [text, setText] = useState(words);
  const [data, setData] = useState<string | undefined>();
  const picker = useRef<HTMLInputElement>(null);
  const parsed = dataOf(data);
  const empty = text.trim() === "" && files.length === 0 && (data ?? "").trim() === "";
  const blocked = refusal !== "" || empty || parsed.bad !== "";
  const send = () => {
    if (blocked) return;
    const parts: Part[] = [];
    if (text.trim() !== "") parts.push({ kind: "text", text });
    for (const f of files) parts.push(partOf(f));
    if (parsed.value !== undefined) parts.push({ kind: "data", data: parsed.value });
    onSend(parts);
    setText("");
    setData(undefined);
    onFiles([]);
  };
  const keys = (e: KeyboardEvent) => {
    if (e.key !== "Enter" || e.shiftKey || e.nativeEvent.isComposing) return;
    e.preventDefault();
    send();
  };
  const paste = (e: ClipboardEvent) => {
    if (e.clipboardData.files.length === 0) return;
    e.preventDefault();
    onTake(e.clipboardData.files);
  };
  return (
    <form
      className="composer"
      onSubmit={(e) => {
        e.preventDefault();
        send();
      }}
    >
      <div className="composer-box">
        {files.length > 0 && (
          <ul className="composer-files" aria-label="Attached files">
            {files.map((f) => (
              <li key={f.key}>
                <span className="truncate">{f.name}</span>
                <span className="muted">{size(f.size)}</span>
                <button
                  type="button"
                  aria-label={`Remove ${f.name}`}
                  onClick={() => onFiles(files.filter((one) => one.key !== f.key))}
                >
                  ×
                </button>
              </li>
            ))}
          </ul>
        )}
        <textarea
          aria-label={answers ? "Answer" : "Message"}
          dir="auto"
          placeholder={answers ? "Answer in words" : "Write a message"}
          rows={Math.min(8, text.split("\n").length)}
          value={text}
          onChange={(e) => setText(e.target.value)}
          onKeyDown={keys}
          onPaste={paste}
        />
        {data !== undefined && (
          <div className="composer-data">
            <textarea
              aria-label="Data, as JSON"
              className="mono"
              placeholder='{"city": "Oslo"}'
              rows={4}
              value={data}
              aria-invalid={parsed.bad ? true : undefined}
              onChange={(e) => setData(e.target.value)}
            />
            {parsed.bad && <small className="composer-bad">{parsed.bad}</small>}
          </div>
        )}
        <div className="composer-row">
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            aria-label="Files to attach"
            onChange={(e) => {
              if (e.target.files) onTake(e.target.files);
              e.target.value = "";
            }}
          />
          <Button kind="ghost" onClick={() => picker.current?.click()}>
            Attach
          </Button>
          <Button kind="ghost" aria-pressed={data !== undefined} onClick={() => setData(data === undefined ? "" : undefined)}>
            Data
          </Button>
          <span className="composer-hint muted truncate">
            {refusal && refusal !== "busy" ? (
              refusal
            ) : (
              <span className="composer-keys">Enter sends · Shift Enter breaks the line</span>
            )}
          </span>
          <Button kind="primary" type="submit" disabled={blocked}>
            Send
          </Button>
        </div>
      </div>
    </form>
  );
}

function dataOf(text: string | undefined): { value?: unknown; bad: string } {
  if (text === undefined || text.trim() === "") return { bad: "" };
  try {
    return { value: parseJson(text), bad: "" };
  } catch (error) {
    return { bad: `This is no JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
}
