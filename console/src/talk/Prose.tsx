import { useDeferredValue } from "react";
import { Markdown } from "../components/Markdown";

/** Prose is text of an agent. Most agents write Markdown, also where they do not say so. Text that grows is parsed when there is time. */
export function Prose({ text }: { text: string }) {
  return <Markdown text={useDeferredValue(text)} />;
}
