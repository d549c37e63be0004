import { useRef, useState } from "react";
import type { Counts, State } from "../api/schema";
import { useSettings } from "../lib/settings";
import { stateNames, states } from "../lib/states";
import { absolute } from "../lib/time";
import { Time } from "./Time";
import "./Histogram.css";

/** order is from the bottom of a bar to its top: what needs no attention, then what has not ended, then what failed. */
const order: State[] = [
  "completed",
  "canceled",
  "submitted",
  "working",
  "input-required",
  "auth-required",
  "rejected",
  "failed",
];

/** Histogram shows when tasks were created and what became of them. A span that is drawn with the pointer is chosen. */
export function Histogram({
  counts,
  label,
  onSpan,
}: {
  counts: Counts;
  label: string;
  /** onSpan gets the beginning and the end of a span. */
  onSpan: (since: string, until: string) => void;
}) {
  const { zone } = useSettings();
  const place = useRef<SVGSVGElement>(null);
  const [brush, setBrush] = useState<[from: number, to: number]>();
  const n = Math.max(0, ...Object.values(counts.created).map((list) => list.length));
  const begins = new Date(counts.begins).getTime();
  const at = (i: number) => new Date(begins + i * counts.width_seconds * 1000);
  const totals = Array.from({ length: n }, (_, i) => order.reduce((sum, s) => sum + (counts.created[s]?.[i] ?? 0), 0));
  const most = Math.max(1, ...totals);
  if (n === 0) return null;
  const index = (clientX: number) => {
    const box = place.current?.getBoundingClientRect();
    return box ? Math.max(0, Math.min(n - 1, Math.floor(((clientX - box.left) / box.width) * n))) : 0;
  };
  const [low, high] = brush ? [Math.min(...brush), Math.max(...brush)] : [0, -1];
  const said = states
    .map((s) => [stateNames[s].toLowerCase(), (counts.created[s] ?? []).reduce((a, b) => a + b, 0)] as const)
    .filter(([, sum]) => sum > 0)
    .map(([name, sum]) => `${sum} ${name}`);
  return (
    <div className="histogram">
      <svg
        ref={place}
        viewBox={`0 0 ${n} 100`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${label}: ${said.join(", ")}`}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          const i = index(event.clientX);
          setBrush([i, i]);
        }}
        onPointerMove={(event) => brush && setBrush([brush[0], index(event.clientX)])}
        onPointerCancel={() => setBrush(undefined)}
        onPointerUp={() => {
          if (!brush) return;
          setBrush(undefined);
          onSpan(at(low).toISOString(), at(high + 1).toISOString());
        }}
      >
        {brush && <rect className="histogram-brush" x={low} y={0} width={high - low + 1} height={100} />}
        {totals.map((total, i) => {
          let y = 100;
          return (
            // biome-ignore lint/suspicious/noArrayIndexKey: an interval is its place
            <g key={i}>
              <title>
                {`${absolute(at(i), zone)}: ${order
                  .filter((s) => counts.created[s]?.[i])
                  .map((s) => `${counts.created[s]?.[i]} ${stateNames[s].toLowerCase()}`)
                  .join(", ")}`}
              </title>
              <rect className="histogram-space" x={i} y={0} width={1} height={100} />
              {order.map((s) => {
                const value = counts.created[s]?.[i] ?? 0;
                if (value === 0) return null;
                const height = Math.max((value / most) * 100, total === value ? 3 : 1);
                y -= height;
                return <rect key={s} data-state={s} x={i + 0.12} y={Math.max(y, 0)} width={0.76} height={height} />;
              })}
            </g>
          );
        })}
      </svg>
      <div className="histogram-ends">
        <Time at={counts.begins} />
        {brush && (
          <span>
            {absolute(at(low), zone)} – {absolute(at(high + 1), zone)}
          </span>
        )}
        <Time at={at(n).toISOString()} />
      </div>
    </div>
  );
}
