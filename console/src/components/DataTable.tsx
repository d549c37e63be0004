import { createColumnHelper, tableFeatures, useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, type Ref, useEffect, useImperativeHandle, useMemo, useRef, useState } from "react";
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

const features = tableFeatures({});
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
  // What a cell knows beside its row changes more often than the columns.
  const facts = useRef((_id: string, _n: number) => ({ index: 0, selected: false }));
  const definitions = useMemo(() => {
    const helper = createColumnHelper<typeof features, T>();
    return helper.columns(
      shown.map((c) =>
        helper.display({
          id: c.id,
          header: () => c.header,
          cell: ({ row }) => seen(c.cell(row.original, facts.current(row.id, row.index))),
        }),
      ),
    );
  }, [shown]);

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

  // The table model has the visible rows only: rows that are not in memory cost nothing.
  const visible: T[] = [];
  const places: number[] = [];
  for (const item of items) {
    const row = rows.at(item.index);
    if (row !== undefined) {
      visible.push(row);
      places.push(item.index);
    }
  }
  facts.current = (id, n) => ({ index: places[n] ?? 0, selected: selected?.has(id) ?? false });
  const table = useTable({ features, columns: definitions, data: visible, getRowId: (row) => rows.id(row) });

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

  const template = shown.map((c) => c.width).join(" ");
  const grid = { gridTemplateColumns: template };
  return (
    <div className="table" ref={scroller}>
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
          {table.getHeaderGroups().map((group) => (
            // biome-ignore lint/a11y/useSemanticElements: see above
            // biome-ignore lint/a11y/useFocusableInteractive: its cells are not interactive
            <div role="row" key={group.id} className="table-row" style={grid} aria-rowindex={1}>
              {group.headers.map((header, i) => (
                // biome-ignore lint/a11y/useSemanticElements: see above
                // biome-ignore lint/a11y/useFocusableInteractive: it does nothing
                <div role="columnheader" key={header.id} className={shown[i]?.end ? "table-cell table-end" : "table-cell"}>
                  <table.FlexRender header={header} />
                </div>
              ))}
            </div>
          ))}
        </div>
        {/* biome-ignore lint/a11y/useSemanticElements: see above */}
        <div role="rowgroup">
          {table.getRowModel().rows.map((row, n) => {
            const index = places[n] ?? 0;
            const id = row.id;
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
                  onOpen?.(row.original);
                }}
              >
                {row.getAllCells().map((cell, i) => (
                  // biome-ignore lint/a11y/useSemanticElements: see above
                  // biome-ignore lint/a11y/useFocusableInteractive: the row has the focus
                  <div role="gridcell" key={cell.id} className={shown[i]?.end ? "table-cell table-end" : "table-cell"}>
                    <table.FlexRender cell={cell} />
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {footer && <div className="table-footer">{footer}</div>}
    </div>
  );
}
