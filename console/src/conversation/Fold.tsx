import { type ReactNode, useEffect, useRef, useState } from "react";

/** lines is how much of a message stays: more would push the next one off the page. */
const lines = 40;

/**
 * Fold shows the first 40 lines of its content, and a button for the rest. It does not fold what grows: the reader watches its end.
 * The keyboard opens what it reaches.
 */
export function Fold({ children, grows = false }: { children: ReactNode; grows?: boolean }) {
  const body = useRef<HTMLDivElement>(null);
  const [long, setLong] = useState(false);
  const [open, setOpen] = useState(grows);
  useEffect(() => {
    const element = body.current;
    if (!element || open) return;
    // It is told when the content comes into view: the browser lays out no other.
    const watch = new ResizeObserver(() => setLong(element.scrollHeight > lines * 1.55 * fontSize(element)));
    for (const child of [element, ...element.children]) watch.observe(child);
    return () => watch.disconnect();
  }, [open]);
  const folded = long && !open;
  return (
    <>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the focus of what is in it arrives here */}
      <div
        ref={body}
        className="fold-body"
        data-folded={folded || undefined}
        onFocus={(event) => {
          const end = body.current?.getBoundingClientRect().bottom ?? 0;
          if (folded && event.target.getBoundingClientRect().bottom > end) setOpen(true);
        }}
      >
        {children}
      </div>
      {long && (
        <div className="part-tools">
          <button type="button" className="link-button" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Show less" : "Show all"}
          </button>
        </div>
      )}
    </>
  );
}

function fontSize(element: Element): number {
  return Number.parseFloat(getComputedStyle(element).fontSize) || 14;
}
