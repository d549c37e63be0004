import { useMemo } from "react";
import { useSettings } from "../lib/settings";
import { exact, useShownTime } from "../lib/time";

/** Time shows a time as the reader has chosen, and exactly on hover. */
export function Time({ at }: { at: string | undefined }) {
  const date = useMemo(() => (at ? new Date(at) : undefined), [at]);
  if (!date || Number.isNaN(date.getTime())) return <span className="muted">–</span>;
  return <Shown date={date} />;
}

function Shown({ date }: { date: Date }) {
  const { zone } = useSettings();
  const text = useShownTime(date);
  return (
    <time dateTime={date.toISOString()} title={exact(date, zone)}>
      {text}
    </time>
  );
}
