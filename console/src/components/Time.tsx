import { useMemo } from "react";
import { useSettings } from "../lib/settings";
import { exact, since, useShown, useShownTime } from "../lib/time";

/** Time shows a time as the reader has chosen, and exactly on hover. */
export function Time({ at }: { at: string | undefined }) {
  const date = useMemo(() => (at ? new Date(at) : undefined), [at]);
  if (!date || Number.isNaN(date.getTime())) return <span className="muted">–</span>;
  return <Shown date={date} />;
}

/** Since says how long ago a time was: "4m". */
export function Since({ at }: { at: string }) {
  const { zone } = useSettings();
  const date = new Date(at);
  const text = useShown(() => since(date, Date.now()));
  return (
    <time dateTime={date.toISOString()} title={exact(date, zone)}>
      {text}
    </time>
  );
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
