import type { ReactNode } from "react";

/** Scroll is a part of a page that scrolls by itself, so that the keyboard reaches what is in it. */
export function Scroll({ className, label, children }: { className: string; label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for a form, and a section would be a landmark for each table
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls
    <div className={className} role="group" tabIndex={0} aria-label={label}>
      {children}
    </div>
  );
}
