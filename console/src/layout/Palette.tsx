import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import { get } from "../api/client";
import { Dialog } from "../components/Dialog";
import { parse, toSearch } from "../lib/filter";
import { recent } from "../lib/place";
import { change, settings } from "../lib/settings";
import { type Shortcut, useShortcut, useShortcuts } from "../lib/shortcuts";
import { stateNames } from "../lib/states";
import { line, shortId } from "../lib/text";
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

/** Palette finds pages, agents, tasks, views, settings and what the page can do by typing. */
export function Palette({ onKeys }: { onKeys: () => void }) {
  const [open, setOpen] = useState(false);
  useShortcut("Mod+k", "Search pages, agents, tasks and actions", "Everywhere", () => setOpen(true));
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

/** isAction says whether a shortcut does something that has a name outside its place, unlike a move in a list. */
function isAction(s: Shortcut): boolean {
  return s.group !== "Everywhere" && s.group !== "Go to" && !/^(Arrow|Home|End|Enter|[jkx]$)/.test(s.keys);
}

/** filters offers what was typed as a filter of tasks. */
function filters(text: string, go: (search: ReturnType<typeof toSearch>) => void): Command[] {
  const filter = parse([], text, Date.now());
  if (typeof filter === "string") return [];
  return [{ name: `Find tasks: ${text}`, group: "Filter", run: () => go(toSearch(filter)) }];
}

function Search({ onClose, onKeys }: { onClose: () => void; onKeys: () => void }) {
  const id = useId();
  const navigate = useNavigate();
  const saved = useViews();
  const shortcuts = useShortcuts();
  const { data: me } = useMe();
  const { data: agents } = useQuery({
    queryKey: ["agents"],
    queryFn: ({ signal }) => get("/agents", { signal }),
    staleTime: 60_000,
  });
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);

  const commands = useMemo<Command[]>(
    () => [
      ...shortcuts.filter(isAction).map((s) => ({
        name: s.label,
        group: "Action",
        keys: s.keys,
        // The dialog keeps the keys to itself until it is closed.
        run: () => void setTimeout(() => s.run(new KeyboardEvent("keydown"))),
      })),
      ...pages
        .filter((p) => may(p.to, me))
        .map((p) => ({ name: p.name, group: "Page", keys: `g ${p.key}`, run: () => void navigate({ to: p.to }) })),
      ...[...builtin, ...saved].map((v) => ({
        name: `Tasks: ${v.name}`,
        group: "View",
        run: () => void navigate({ to: "/tasks", search: v.search }),
      })),
      ...(agents?.agents ?? []).flatMap((a) => [
        {
          name: a.name,
          group: "Agent",
          run: () => void navigate({ to: "/agents/$name", params: { name: a.name } }),
        },
        {
          name: `${a.name}: its tasks`,
          group: "Agent",
          run: () => void navigate({ to: "/tasks", search: { agent: a.name } }),
        },
        {
          name: `${a.name}: talk to it`,
          group: "Agent",
          run: () => void navigate({ to: "/talk", search: { agent: a.name } }),
        },
      ]),
      ...recent().map((t) => ({
        name: `${line(t.said ?? "", 60)} ${shortId(t.task_id)} · ${stateNames[t.state]}`.trim(),
        group: "Task",
        run: () => void navigate({ to: "/tasks/$id", params: { id: t.id } }),
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
    [me, saved, navigate, onKeys, shortcuts, agents],
  );
  const text = typed.trim();
  const opening = (task: string): Command => ({
    name: `Open task ${task}`,
    group: "Task",
    run: () => void navigate({ to: "/tasks/$id", params: { id: task } }),
  });
  const found = text
    ? [
        ...commands
          .map((command) => ({ command, fit: score(command.name, text) }))
          .filter((c) => c.fit > 0)
          .sort((a, b) => b.fit - a.fit)
          .map((c) => c.command),
        ...(/\s|:/.test(text) ? [] : [opening(text)]),
        ...filters(text, (search) => void navigate({ to: "/tasks", search })),
        ...(/\s/.test(text) || !text.includes(":") ? [] : [opening(text)]),
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
        placeholder="A page, an agent, an action, a task, or a filter such as state:failed"
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
