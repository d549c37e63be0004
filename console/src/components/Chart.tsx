import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useMedia } from "../lib/media";
import { useSettings } from "../lib/settings";
import { absolute, duration } from "../lib/time";
import "./Chart.css";

export interface Series {
  name: string;
  /** colour is the name of a token, such as --accent. */
  colour: string;
  values: (number | null)[];
  /** bars are drawn as columns, others as a line. */
  bars?: boolean;
  fill?: boolean;
}

/**
 * Chart shows numbers over time. A small one has no axes. What it shows is also in its label, because a canvas has no text.
 */
export function Chart({
  label,
  times,
  series,
  unit = "count",
  small,
  sync,
}: {
  label: string;
  /** times are in seconds. */
  times: number[];
  series: Series[];
  unit?: "count" | "seconds";
  small?: boolean;
  /** Charts with the same name share their cursor. */
  sync?: string;
}) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  /** at is the time under the cursor, which all charts of a sync have. */
  const [at, setAt] = useState<number>();
  const dark = useMedia("(prefers-color-scheme: dark)");
  const { theme, zone } = useSettings();
  const data = useMemo(() => [times, ...series.map((s) => s.values)] as uPlot.AlignedData, [times, series]);
  const latest = useRef(data);
  latest.current = data;
  const show = (v: number | null | undefined) => (v == null ? "–" : unit === "seconds" ? duration(v * 1000) : String(v));
  const kind = series.map((s) => `${s.name} ${s.colour} ${s.bars} ${s.fill}`).join();

  // biome-ignore lint/correctness/useExhaustiveDependencies: kind stands for series; the theme and the zone change what is drawn
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const paint = (name: string) => resolve(element, `var(${name})`);
    const text = paint("--text-2");
    const line = paint("--line");
    const font = `11px ${getComputedStyle(element).fontFamily}`;
    const size = () => ({ width: Math.max(element.clientWidth, 40), height: small ? 36 : 150 });
    const axis: uPlot.Axis = { stroke: text, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    const u = new uPlot(
      {
        ...size(),
        padding: small ? [3, 0, 1, 0] : [8, 8, 0, 0],
        legend: { show: false },
        hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? undefined)] },
        cursor: {
          show: !small,
          y: false,
          drag: { x: false, y: false },
          points: { size: 5 },
          ...(sync ? { sync: { key: sync } } : {}),
        },
        tzDate: (at) => (zone === "utc" ? uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000)),
        scales: {
          x: { time: true },
          y: { range: (_u, _min, max) => [0, Math.max(max ?? 0, unit === "count" ? 1 : 0.001) * 1.08] },
        },
        axes: small
          ? [{ show: false }, { show: false }]
          : [
              { ...axis, grid: { show: false }, size: 24, gap: 4, space: 70, values: clock },
              {
                ...axis,
                size: 52,
                space: 32,
                values: (_u, all) => all.map((v) => (unit === "count" && v % 1 !== 0 ? "" : show(v))),
              },
            ],
        series: [
          {},
          ...series.map((s): uPlot.Series => {
            const colour = paint(s.colour);
            return {
              label: s.name,
              stroke: colour,
              width: s.bars ? 0 : 1.5,
              fill: s.bars ? colour : s.fill ? translucent(colour) : undefined,
              points: { show: !s.bars, size: small ? 3 : 4, fill: colour },
              paths: s.bars ? uPlot.paths.bars?.({ size: [0.75, 24], align: 1 }) : undefined,
              spanGaps: false,
            };
          }),
        ],
      },
      latest.current,
      element,
    );
    plot.current = u;
    const observer = new ResizeObserver(() => u.setSize(size()));
    observer.observe(element);
    return () => {
      observer.disconnect();
      u.destroy();
      plot.current = undefined;
    };
  }, [kind, unit, small, sync, dark, theme, zone]);

  useEffect(() => plot.current?.setData(data), [data]);
  const time = at === undefined ? undefined : times[at];
  return (
    <>
      <div className={small ? "chart chart-small" : "chart"} role="img" aria-label={label} ref={place} />
      {!small && (
        <p className="chart-legend" aria-hidden="true">
          {series.map((s) => (
            <span key={s.name}>
              <span className="chart-mark" style={{ background: `var(${s.colour})` }} />
              {s.name} {at !== undefined && <b>{show(s.values[at])}</b>}
            </span>
          ))}
          {time !== undefined && <span>{absolute(new Date(time * 1000), zone)}</span>}
        </p>
      )}
    </>
  );
}

/** clock writes the times of an axis, of a longer span with the day. */
function clock(u: uPlot, times: number[]): string[] {
  const [from = 0, to = 0] = [u.scales.x?.min, u.scales.x?.max];
  const long = to - from > 2 * 86_400;
  const two = (n: number) => String(n).padStart(2, "0");
  return times.map((at) => {
    const d = (u as unknown as { _tzDate?: (at: number) => Date })._tzDate?.(at) ?? new Date(at * 1000);
    return long ? `${two(d.getMonth() + 1)}-${two(d.getDate())}` : `${two(d.getHours())}:${two(d.getMinutes())}`;
  });
}

/** resolve returns a colour as a canvas takes it: light-dark() and var() are for style sheets only. */
function resolve(element: HTMLElement, colour: string): string {
  const probe = document.createElement("span");
  probe.style.color = colour;
  probe.style.display = "none";
  element.append(probe);
  const out = getComputedStyle(probe).color;
  probe.remove();
  return out;
}

function translucent(colour: string): string {
  return colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.14)");
}
