/** Prose is text of an agent, with its line breaks. */
export function Prose({ text }: { text: string }) {
  return <p className="part-text">{text}</p>;
}
