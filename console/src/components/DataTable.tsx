import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, type ReactNode, type Ref, useEffect, useImperativeHandle, useMemo, useRef, useState } from "react";
import { useMedia, useNarrow } from "../lib/media";
import { useShortcut } from "../lib/shortcuts";
import { seen } from "../lib/text";
import "./DataTable.css";

export interface Column<T extends object> {
  id: string;
  header: ReactNode;
  cell: (row: T, at: { index: number; selected: boolean }) => ReactNode;
  /** width is a track of a CSS grid, such as 120px or minmax(160px, 1fr). */
  width: string;
  /** On a phone a column without this is not shown. */
  narrow?: boolean;
  end?: boolean;
  /** sort is there if a click on the header turns the order of the rows. */
  sort?: { order: "ascending" | "descending"; help: string; turn: () => void };
}

/** Rows are rows of which only some are in memory. */
export interface Rows<T extends object> {
  count: number;
  at: (index: number) => T | undefined;
  id: (row: T) => string;
}

export interface TableHandle {
  top: () => void;
  /** scrollBy keeps the shown rows in place when rows are put before them or taken away. */
  shift: (rows: number) => void;
}

const none: never[] = [];

/** rowsOf makes rows of an array. */
export function rowsOf<T extends object>(list: readonly T[] | undefined, id: (row: T) => string): Rows<T> {
  const rows = list ?? none;
  return { count: rows.length, at: (i) => rows[i], id };
}

/**
 * DataTable shows rows of one height; only the visible ones are in the document. j, k, the arrows and Enter work while it is
 * shown, and x when rows can be selected.
 */
export function DataTable<T extends object>({
  label,
  columns,
  rows,
  onOpen,
  onVisible,
  selected,
  onSelect,
  footer,
  loading = false,
  handle,
  lines = 1,
}: {
  label: string;
  columns: Column<T>[];
  rows: Rows<T>;
  onOpen?: (row: T) => void;
  /** onVisible is called with the first and the last visible row. */
  onVisible?: (first: number, last: number) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (row: T, index: number, range: boolean) => void;
  footer?: ReactNode;
  /** loading says that rows are on the way. Until the first ones are here, grey rows stand in for them. */
  loading?: boolean;
  handle?: Ref<TableHandle>;
  /** lines is how many lines of text a row has. */
  lines?: 1 | 2;
}) {
  const narrow = useNarrow();
  const coarse = useMedia("(pointer: coarse)");
  const height = lines === 2 ? 52 : coarse ? 44 : 34;
  const scroller = useRef<HTMLDivElement>(null);
  const [cursor, setCursor] = useState(-1);
  const focusNext = useRef(false);

  const shown = useMemo(() => columns.filter((c) => !narrow || c.narrow), [columns, narrow]);
  const virtual = useVirtualizer({
    count: rows.count,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 12,
    scrollMargin: 0,
    paddingStart: 32,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the virtualizer is stable, its sizes are not
  useEffect(() => virtual.measure(), [height]);

  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => onVisible?.(first, last), [onVisible, first, last]);

  useImperativeHandle(handle, () => ({
    top: () => {
      virtual.scrollToOffset(0);
      setCursor(-1);
    },
    shift: (n) => {
      const element = scroller.current;
      if (element) element.scrollTop += n * height;
      setCursor((at) => (at < 0 ? at : Math.max(0, at + n)));
    },
  }));

  const move = (to: number) => {
    if (rows.count === 0) return;
    const next = Math.max(0, Math.min(rows.count - 1, to));
    setCursor(next);
    focusNext.current = true;
    virtual.scrollToIndex(next, { align: "auto" });
  };
  useEffect(() => {
    if (!focusNext.current || cursor < 0) return;
    const element = scroller.current?.querySelector<HTMLElement>(`[data-index="${cursor}"]`);
    if (element) {
      focusNext.current = false;
      element.focus({ preventScroll: true });
    }
  });
  const at = cursor < 0 ? undefined : rows.at(cursor);
  useShortcut("j", "Next row", "Lists", () => move(cursor + 1));
  useShortcut("k", "Previous row", "Lists", () => move(cursor < 0 ? 0 : cursor - 1));
  useShortcut("ArrowDown", "Next row", "Lists", () => move(cursor + 1));
  useShortcut("ArrowUp", "Previous row", "Lists", () => move(cursor < 0 ? 0 : cursor - 1));
  useShortcut("Home", "First row", "Lists", () => move(0));
  useShortcut("End", "Last row that is loaded", "Lists", () => move(rows.count - 1));
  useShortcut(onOpen && "Enter", "Open the row", "Lists", () => at !== undefined && onOpen?.(at));
  useShortcut(onSelect && "x", "Select the row", "Lists", () => at !== undefined && onSelect?.(at, cursor, false));

  const empty = loading && rows.count === 0;
  const template = shown.map((c) => c.width).join(" ");
  const grid = { gridTemplateColumns: template };
  return (
    <div className="table" data-loading={empty || undefined} ref={scroller}>
      {/* biome-ignore lint/a11y/useSemanticElements: a table element cannot hold virtual rows of a CSS grid */}
      <div
        role="grid"
        aria-label={label}
        aria-rowcount={rows.count + 1}
        aria-multiselectable={selected ? true : undefined}
        className="table-grid"
        style={{ height: virtual.getTotalSize() }}
      >
        {/* biome-ignore lint/a11y/useSemanticElements: see above */}
        <div role="rowgroup" className="table-head">
          {/* biome-ignore lint/a11y/useSemanticElements: see above */}
          {/* biome-ignore lint/a11y/useFocusableInteractive: what is interactive in it has the focus */}
          <div role="row" className="table-row" style={grid} aria-rowindex={1}>
            {shown.map((c) => (
              // biome-ignore lint/a11y/useSemanticElements: see above
              // biome-ignore lint/a11y/useFocusableInteractive: see above
              <div
                role="columnheader"
                key={c.id}
                className={c.end ? "table-cell table-end" : "table-cell"}
                aria-sort={c.sort?.order}
              >
                {c.sort ? (
                  <button type="button" className="table-sort" title={c.sort.help} onClick={c.sort.turn}>
                    {c.header} <span aria-hidden="true">{c.sort.order === "ascending" ? "↑" : "↓"}</span>
                  </button>
                ) : (
                  c.header
                )}
              </div>
            ))}
          </div>
        </div>
        {/* biome-ignore lint/a11y/useSemanticElements: see above */}
        <div role="rowgroup">
          {items.map(({ index }) => {
            const row = rows.at(index);
            if (row === undefined) return null;
            const id = rows.id(row);
            const at = { index, selected: selected?.has(id) ?? false };
            return (
              // biome-ignore lint/a11y/useSemanticElements: see above
              // biome-ignore lint/a11y/useKeyWithClickEvents: the shortcuts above do
              <div
                role="row"
                key={id}
                data-index={index}
                aria-rowindex={index + 2}
                aria-selected={selected ? selected.has(id) : undefined}
                tabIndex={index === Math.max(cursor, 0) ? 0 : -1}
                className={onOpen ? "table-row table-item table-opens" : "table-row table-item"}
                style={{ ...grid, height, transform: `translateY(${32 + index * height}px)` }}
                onFocus={() => setCursor(index)}
                onClick={(event) => {
                  const target = event.target as HTMLElement;
                  if (target.closest("a, button, input, label, [role=checkbox]") || String(getSelection())) return;
                  setCursor(index);
                  onOpen?.(row);
                }}
              >
                {shown.map((c) => (
                  // biome-ignore lint/a11y/useSemanticElements: see above
                  // biome-ignore lint/a11y/useFocusableInteractive: the row has the focus
                  <div role="gridcell" key={c.id} className={c.end ? "table-cell table-end" : "table-cell"}>
                    {seen(c.cell(row, at))}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {empty && <Skeleton columns={shown.length} style={{ ...grid, height }} />}
      <p className="visually-hidden" role="status">
        {empty && "Loading…"}
      </p>
      {!empty && (loading || footer) && <div className="table-footer">{loading ? "Loading…" : footer}</div>}
    </div>
  );
}

/** Skeleton draws rows before the first data. */
function Skeleton({ columns, style }: { columns: number; style: CSSProperties }) {
  return (
    <div aria-hidden="true">
      {Array.from({ length: 12 }, (_, row) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are alike
        <div key={row} className="table-row table-skeleton" style={style}>
          {Array.from({ length: columns }, (_, column) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: see above
            <i key={column} />
          ))}
        </div>
      ))}
    </div>
  );
}
