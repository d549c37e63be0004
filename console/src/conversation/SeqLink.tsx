export interface SeqLinkProps {
  seq: number;
  toSeq: (seq: number) => void;
}

/** SeqLink leads to an event in the log. */
export function SeqLink({ seq, toSeq, children }: SeqLinkProps & { children?: React.ReactNode }) {
  return (
    <a
      className="task-seq"
      href={`?tab=log&seq=${seq}`}
      title={`Event ${seq} in the log`}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        toSeq(seq);
      }}
    >
      {children ?? `#${seq}`}
    </a>
  );
}
