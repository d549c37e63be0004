import "./Progress.css";

/** Progress is a bar of parts with their numbers. Without a total it only says that something runs. */
export function Progress({
  label,
  parts,
  total,
}: {
  label: string;
  parts: { name: string; value: number; tone: "good" | "neutral" | "bad" }[];
  total?: number;
}) {
  const done = parts.reduce((sum, p) => sum + p.value, 0);
  return (
    <div
      className={total === undefined ? "progress progress-open" : "progress"}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={total}
      aria-valuenow={total === undefined ? undefined : done}
      aria-valuetext={parts.map((p) => `${p.value} ${p.name}`).join(", ")}
    >
      {parts.map((p) => (
        <span key={p.name} data-tone={p.tone} style={{ width: total ? `${(100 * p.value) / Math.max(total, done)}%` : 0 }} />
      ))}
    </div>
  );
}
