import type { ReactNode } from "react";

/** Scroll is a region that scrolls by itself, so that the keyboard reaches what is in it. */
export function Scroll({ className, label, children }: { className: string; label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
    <section className={className} tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}
