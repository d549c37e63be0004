import { useNavigate } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import { Dialog } from "../components/Dialog";
import { change, settings } from "../lib/settings";
import { useShortcut } from "../lib/shortcuts";
import { builtin, useViews } from "../lib/views";
import { useMe } from "./me";
import { may, pages } from "./nav";
import "./Palette.css";

interface Command {
  name: string;
  group: string;
  keys?: string;
  run: () => void;
}

/** Palette finds pages, views, settings and tasks by typing. */
export function Palette({ onKeys }: { onKeys: () => void }) {
  const [open, setOpen] = useState(false);
  useShortcut("Mod+k", "Search pages, views and task ids", "Everywhere", () => setOpen(true));
  return (
    <Dialog open={open} onClose={() => setOpen(false)} title="Go to or do" wide>
      <Search onClose={() => setOpen(false)} onKeys={onKeys} />
    </Dialog>
  );
}

/** score says how well a name fits what was typed: 0 not at all. */
export function score(name: string, typed: string): number {
  const a = name.toLowerCase();
  const b = typed.toLowerCase().trim();
  if (a.startsWith(b)) return 3;
  if (a.split(/\W+/).some((word) => word.startsWith(b))) return 2;
  return a.includes(b) ? 1 : 0;
}

function Search({ onClose, onKeys }: { onClose: () => void; onKeys: () => void }) {
  const id = useId();
  const navigate = useNavigate();
  const saved = useViews();
  const { data: me } = useMe();
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);

  const commands = useMemo<Command[]>(
    () => [
      ...pages
        .filter((p) => may(p.to, me))
        .map((p) => ({ name: p.name, group: "Page", keys: `g ${p.key}`, run: () => void navigate({ to: p.to }) })),
      ...[...builtin, ...saved].map((v) => ({
        name: `Tasks: ${v.name}`,
        group: "View",
        run: () => void navigate({ to: "/tasks", search: v.search }),
      })),
      { name: "Theme: light", group: "Setting", run: () => change({ theme: "light" }) },
      { name: "Theme: dark", group: "Setting", run: () => change({ theme: "dark" }) },
      { name: "Theme: as the system", group: "Setting", run: () => change({ theme: "system" }) },
      {
        name: settings().times === "relative" ? "Show absolute times" : "Show relative times",
        group: "Setting",
        run: () => change({ times: settings().times === "relative" ? "absolute" : "relative" }),
      },
      {
        name: settings().zone === "utc" ? "Show local times" : "Show times in UTC",
        group: "Setting",
        run: () => change({ zone: settings().zone === "utc" ? "local" : "utc" }),
      },
      { name: "Keyboard shortcuts", group: "Help", keys: "?", run: onKeys },
    ],
    [me, saved, navigate, onKeys],
  );
  const text = typed.trim();
  const found = text
    ? [
        ...commands
          .map((command) => ({ command, fit: score(command.name, text) }))
          .filter((c) => c.fit > 0)
          .sort((a, b) => b.fit - a.fit)
          .map((c) => c.command),
        ...(text.includes(" ")
          ? []
          : [
              {
                name: `Open task ${text}`,
                group: "Task",
                run: () => void navigate({ to: "/tasks/$id", params: { id: text } }),
              },
            ]),
      ]
    : commands;
  const run = (command: Command | undefined) => {
    if (!command) return;
    onClose();
    command.run();
  };
  return (
    <div className="palette">
      <input
        className="input palette-input"
        role="combobox"
        aria-label="Search"
        aria-expanded={found.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={found.length > 0 ? `${id}-${at}` : undefined}
        aria-autocomplete="list"
        placeholder="A page, a view, a setting, or the id of a task"
        autoComplete="off"
        spellCheck={false}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            if (found.length > 0) setAt((at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length);
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(found[at]);
          }
        }}
      />
      <div role="listbox" id={`${id}-list`} aria-label="Results" className="palette-list">
        {found.map((command, i) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys of the text run it
          <div
            key={command.group + command.name}
            id={`${id}-${i}`}
            role="option"
            tabIndex={-1}
            aria-selected={i === at}
            className="palette-item"
            ref={i === at ? (element) => element?.scrollIntoView({ block: "nearest" }) : undefined}
            onMouseMove={() => setAt(i)}
            onClick={() => run(command)}
          >
            <span className="truncate">{command.name}</span>
            <span className="palette-group">{command.keys ? <Keys keys={command.keys} /> : command.group}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="muted">Nothing has this name. An id of a task has no spaces.</p>}
    </div>
  );
}

/** Keys shows the keys of a shortcut. */
export function Keys({ keys }: { keys: string }) {
  const mac = navigator.platform.startsWith("Mac");
  const names: Record<string, string> = { ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc", "Mod+k": mac ? "⌘ K" : "Ctrl K" };
  return (
    <span className="keys">
      {keys.split(" ").map((one) => (
        <kbd key={one}>{names[one] ?? one}</kbd>
      ))}
    </span>
  );
}
