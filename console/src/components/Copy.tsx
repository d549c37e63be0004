import { useEffect, useState } from "react";
import "./Copy.css";

/** Copy is a button that copies a text. */
export function Copy({ text, label = "Copy", children }: { text: string; label?: string; children?: React.ReactNode }) {
  const [done, setDone] = useState<"yes" | "no" | undefined>();
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(undefined), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      className="copy"
      aria-label={children ? undefined : label}
      title={label}
      onClick={(event) => {
        event.preventDefault();
        event.stopPropagation();
        write(text).then(
          () => setDone("yes"),
          () => setDone("no"),
        );
      }}
    >
      {children}
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {done === "yes" ? (
          <path d="m3 8.5 3.2 3.2L13 4.8" />
        ) : (
          <path d="M5.5 5.5v-2a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-2m-7-5h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-6a1 1 0 0 1-1-1v-6a1 1 0 0 1 1-1Z" />
        )}
      </svg>
      <span className="visually-hidden" role="status">
        {done === "yes" ? "Copied" : done === "no" ? "The browser refused to copy" : ""}
      </span>
    </button>
  );
}

/** write copies. Pages that came without TLS from another machine have no clipboard API. */
export async function write(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  document.body.append(area);
  area.select();
  const ok = document.execCommand("copy");
  area.remove();
  if (!ok) throw new Error("refused");
}
