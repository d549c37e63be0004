import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Suspense, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { get, put, remove } from "../api/client";
import { type LiveState, useLive } from "../api/live";
import type { Counts as CountsOf, Task } from "../api/schema";
import { Badge, Tag } from "../components/Badge";
import type { Selection } from "../components/BulkBar";
import { Button } from "../components/Button";
import { type Column, DataTable, type TableHandle } from "../components/DataTable";
import { Dialog } from "../components/Dialog";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { FilterField, type Suggestions } from "../components/FilterField";
import { Histogram } from "../components/Histogram";
import { Live } from "../components/Live";
import { Menu } from "../components/Menu";
import { Page } from "../components/Page";
import { StatusText } from "../components/StatusLine";
import { Time } from "../components/Time";
import { later } from "../layout/later";
import { useActRefusal } from "../layout/me";
import { money, short } from "../lib/amounts";
import {
  firstOf,
  fromSearch,
  isPlain,
  statesOf,
  type TaskFilter,
  toggle,
  toQuery,
  toSearch,
  unplain,
  valuesOf,
  within,
  without,
} from "../lib/filter";
import { useNarrow } from "../lib/media";
import { keepPlace } from "../lib/place";
import { refresh } from "../lib/refresh";
import { type Search, stringifySearch } from "../lib/search";
import { change as changeSetting, useSettings } from "../lib/settings";
import { useShortcut } from "../lib/shortcuts";
import { isFinal, stateNames, states } from "../lib/states";
import { TaskList } from "../lib/taskList";
import { line, shortId, visible } from "../lib/text";
import { duration, useShown } from "../lib/time";
import { builtin, useViews, type View } from "../lib/views";
import "./tasks.css";

const First = later(() => import("../talk/First").then((file) => file.First));
const BulkBar = later(() => import("../components/BulkBar").then((file) => file.BulkBar));

export function TasksPage() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const filter = useMemo(() => fromSearch(search), [search]);
  const key = stringifySearch(toSearch(filter));
  const [live, setLive] = useState<LiveState>("connecting");
  const [suggestions, setSuggestions] = useState<Suggestions>({});
  // The counts are the dearest request of the page: they do not hold up the first rows.
  const [read, setRead] = useState(false);
  const plain = isPlain(filter);
  const change = useCallback((next: TaskFilter) => void navigate({ to: "/tasks", search: toSearch(next) }), [navigate]);
  const counts = useCounts(filter, plain && read);

  return (
    <Page title="Tasks" fixed actions={plain && <Live state={live} />}>
      <Views current={key} />
      <div className="tasks-bar">
        <FilterField filter={filter} onChange={change} suggestions={suggestions} />
        <Columns />
      </div>
      {plain &&
        (counts ? (
          <Histogram
            counts={counts}
            label="When the tasks were created"
            onSpan={(since, until) => change(within(filter, since, until))}
          />
        ) : (
          <div className="histogram" />
        ))}
      {plain && <Counts filter={filter} onChange={change} data={counts} />}
      {plain && counts && <Agents filter={filter} onChange={change} counts={counts.agents} />}
      <List key={key} filter={filter} onChange={change} onLive={setLive} onRead={setRead} onSuggestions={setSuggestions} />
    </Page>
  );
}

/** Views are filters with names. */
function Views({ current }: { current: string }) {
  const saved = useViews();
  const queries = useQueryClient();
  const refusal = useActRefusal();
  const navigate = useNavigate();
  const [error, setError] = useState<unknown>();
  const again = () => queries.invalidateQueries({ queryKey: ["views"] });
  const [naming, setNaming] = useState(false);
  const [failed, setFailed] = useState<unknown>();
  const keyOf = (view: View) => stringifySearch(toSearch(fromSearch(view.search)));
  const known = [...builtin, ...saved].some((v) => keyOf(v) === current);
  useShortcut(known || refusal ? undefined : "s", "Save the filter as a view", "Tasks", () => setNaming(true));
  return (
    <nav className="views" aria-label="Views">
      {[...builtin, ...saved].map((view) => (
        <span key={view.name} className="view" data-current={keyOf(view) === current || undefined}>
          <Link to="/tasks" search={view.search} aria-current={keyOf(view) === current ? "true" : undefined}>
            {visible(view.name)}
          </Link>
          {keyOf(view) === current && saved.includes(view) && !refusal && (
            <button
              type="button"
              aria-label={`Delete the view ${view.name}`}
              onClick={() => {
                remove("/views/{name}", { path: { name: view.name } }).then(again, setError);
                void navigate({ to: "/tasks", search: {} });
              }}
            >
              ×
            </button>
          )}
        </span>
      ))}
      {error !== undefined && <ErrorBox error={error} title="The view was not deleted" />}
      {!known && !refusal && (
        <Button kind="ghost" onClick={() => setNaming(true)}>
          Save view
        </Button>
      )}
      <Dialog open={naming} onClose={() => setNaming(false)} title="Save this filter as a view">
        <form
          className="dialog-form"
          onSubmit={(event) => {
            event.preventDefault();
            const name = String(new FormData(event.currentTarget).get("name") ?? "").trim();
            if (!name) return;
            setFailed(undefined);
            put("/views/{name}", { path: { name }, body: { filter: current.replace(/^\?/, "") } })
              .then(() => {
                setNaming(false);
                void again();
              })
              .catch(setFailed);
          }}
        >
          <label className="dialog-field">
            Name
            <input className="input" name="name" required maxLength={60} autoComplete="off" />
            <span className="muted">All operators who see the same tenants share it. Its address is a link to it.</span>
          </label>
          {failed !== undefined && <ErrorBox error={failed} title="The view was not saved" />}
          <div className="dialog-buttons">
            <Button onClick={() => setNaming(false)}>Back</Button>
            <Button type="submit" kind="primary">
              Save
            </Button>
          </div>
        </form>
      </Dialog>
    </nav>
  );
}

/** Columns chooses those of the list. */
function Columns() {
  const { columns } = useSettings();
  return (
    <Menu
      items={optional.map(({ id, header, hidden }) => {
        const on = columns[id] ?? !hidden;
        return {
          name: `${on ? "Hide" : "Show"}: ${header}`,
          run: () => changeSetting({ columns: { ...columns, [id]: !on } }),
        };
      })}
    >
      Columns
    </Menu>
  );
}

/** useCounts reads how many tasks each state has, and when they were created. */
function useCounts(filter: TaskFilter, enabled: boolean): CountsOf | undefined {
  const rest = useMemo(() => without(without(filter, "state"), "order"), [filter]);
  const took = useRef(0);
  const { data } = useQuery({
    enabled,
    queryKey: ["counts", stringifySearch(toSearch(rest))],
    queryFn: async ({ signal }) => {
      const begun = performance.now();
      const counts = await get("/tasks/counts", { query: toQuery(rest, Date.now()), signal });
      took.current = performance.now() - begun;
      return counts;
    },
    // Counts of many tasks cost the database more, so they are read less often.
    refetchInterval: () => Math.max(5_000, 50 * took.current),
    placeholderData: (old) => old,
  });
  return data;
}

/** Counts are how many tasks each state has, and choose states. */
function Counts({
  filter,
  onChange,
  data,
}: {
  filter: TaskFilter;
  onChange: (filter: TaskFilter) => void;
  data: CountsOf | undefined;
}) {
  const asked = statesOf(filter);
  const bounded = data?.counted_since !== undefined;
  return (
    <fieldset className="counts" title={bounded ? "Only the newest 100,000 tasks were counted." : undefined}>
      <legend className="visually-hidden">States</legend>
      {states.map((state) => {
        const on = asked.includes(state);
        return (
          <button
            key={state}
            type="button"
            className="count"
            data-state={state}
            aria-pressed={on}
            onClick={() => onChange(toggle(filter, state))}
          >
            <span className="count-dot" aria-hidden="true" />
            {stateNames[state]}
            <span className="count-number">
              {data ? (data.counts[state] ?? 0).toLocaleString("en") : "·"}
              {bounded && "+"}
            </span>
          </button>
        );
      })}
    </fieldset>
  );
}

const mostAgents = 12;

/** Agents are how many tasks the agents with most of them have, in any state, and choose agents. */
function Agents({
  filter,
  onChange,
  counts,
}: {
  filter: TaskFilter;
  onChange: (filter: TaskFilter) => void;
  counts: Record<string, number>;
}) {
  const asked = valuesOf(filter, "agent");
  const found = Object.entries(counts).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  if (found.length < 2 && asked.length === 0) return null;
  const shown = [...found.slice(0, mostAgents), ...found.slice(mostAgents).filter(([name]) => asked.includes(name))];
  return (
    <fieldset className="counts">
      <legend className="visually-hidden">Agents</legend>
      {shown.map(([name, n]) => (
        <button
          key={name}
          type="button"
          className="count"
          aria-pressed={asked.includes(name)}
          onClick={() => onChange(toggle(filter, name, "agent"))}
        >
          {visible(name)}
          <span className="count-number">{n.toLocaleString("en")}</span>
        </button>
      ))}
      {found.length > shown.length && <span className="muted">and {found.length - shown.length} more</span>}
    </fieldset>
  );
}

function List({
  filter,
  onChange,
  onLive,
  onRead,
  onSuggestions,
}: {
  filter: TaskFilter;
  onChange: (filter: TaskFilter) => void;
  onLive: (state: LiveState) => void;
  onRead: (read: boolean) => void;
  onSuggestions: (suggestions: Suggestions) => void;
}) {
  const navigate = useNavigate();
  const table = useRef<TableHandle>(null);
  const plain = isPlain(filter);
  const oldest = firstOf(filter, "order") !== undefined;
  // Relative times are those of the moment when the filter was chosen.
  const query = useMemo(() => toQuery(filter, Date.now()), [filter]);
  const list = useMemo(() => {
    const rest = unplain(filter);
    return new TaskList(
      (from, limit, signal) => {
        const page = oldest ? { order: "asc" as const, after: from } : { before: from };
        return get("/tasks", { query: { ...query, ...rest, ...page, limit }, signal });
      },
      {},
      oldest,
    );
  }, [query, filter, oldest]);
  useSyncExternalStore(list.subscribe, () => list.version);
  useEffect(() => {
    list.shifted = (rows) => table.current?.shift(rows);
    keepPlace({ filter, list });
    void list.restart();
    return () => list.stop();
  }, [list, filter]);

  const [selected, setSelected] = useState<ReadonlyMap<string, Task>>(new Map());
  const [all, setAll] = useState(false);
  const anchor = useRef(-1);
  const hovered = useRef(false);
  const scrolled = useRef(false);
  const hold = useCallback(() => {
    const held = hovered.current || scrolled.current;
    if (list.held === held) return;
    list.held = held;
    if (!held) list.release();
  }, [list]);

  // A busy server tells of many tasks at a time: they are drawn together.
  const buffer = useRef<{ task: Task; matches: boolean }[]>([]);
  const frame = useRef(0);
  useEffect(() => () => clearTimeout(frame.current), []);
  const state = useLive(plain ? "/tasks/stream" : undefined, query, "", {
    events: ["task"],
    on: (event, data) => {
      if (event === "task") {
        buffer.current.push(data as { task: Task; matches: boolean });
        frame.current ||= setTimeout(() => {
          frame.current = 0;
          list.apply(buffer.current);
          buffer.current = [];
        }, 100) as unknown as number;
      } else if (event === "resync" || event === "ready") void list.refresh();
    },
  });
  useEffect(() => onLive(state), [onLive, state]);
  // A line may change without an event: an outage begins, a time has come.
  useEffect(() => {
    const timer = setInterval(() => {
      const open = Array.from({ length: Math.min(list.count, 100) }, (_, i) => list.at(i)).some((t) => t && !isFinal(t.state));
      if (plain && open && !document.hidden) void list.refresh();
    }, refresh.later);
    return () => clearInterval(timer);
  }, [list, plain]);
  const read = list.started || list.error !== undefined;
  useEffect(() => {
    if (read) onRead(true);
  }, [onRead, read]);

  const { data: agents } = useQuery({
    queryKey: ["agents"],
    queryFn: ({ signal }) => get("/agents", { signal }),
    staleTime: 60_000,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the version stands for the rows
  useEffect(() => {
    const seen = { tenant: new Set<string>(), owner: new Set<string>(), context: new Set<string>() };
    for (let i = 0; i < 200; i++) {
      const task = list.at(i);
      if (!task) break;
      if (task.tenant) seen.tenant.add(task.tenant);
      if (task.owner) seen.owner.add(task.owner);
      seen.context.add(task.context_id);
    }
    onSuggestions({
      agent: agents?.agents.map((a) => a.name) ?? [],
      tenant: [...seen.tenant],
      owner: [...seen.owner],
      context: [...seen.context].slice(0, 20),
    });
  }, [agents, list.started, onSuggestions]);

  const select = useCallback(
    (task: Task, index: number, range: boolean) => {
      setAll(false);
      setSelected((old) => {
        const next = new Map(old);
        if (range && anchor.current >= 0) {
          const [from, to] = [Math.min(anchor.current, index), Math.max(anchor.current, index)];
          for (let i = from; i <= to; i++) {
            const one = list.at(i);
            if (one) next.set(one.id, one);
          }
        } else if (!next.delete(task.id)) next.set(task.id, task);
        return next;
      });
      anchor.current = index;
    },
    [list],
  );
  const clear = useCallback(() => {
    setSelected(new Map());
    setAll(false);
  }, []);
  useShortcut(selected.size > 0 || all ? "Escape" : undefined, "Clear the selection", "Tasks", clear);
  useShortcut(list.waiting > 0 ? "n" : undefined, "Show what is new", "Tasks", () => showNew());

  // A column is empty until a task has what it shows.
  const has = useRef({ owner: false, tokens: false });
  for (let i = 0; i < Math.min(list.count, 50); i++) {
    const task = list.at(i);
    if (task?.owner || task?.tenant) has.current.owner = true;
    if (task?.tokens) has.current.tokens = true;
  }
  const { owner, tokens } = has.current;
  const { columns: chosen, times } = useSettings();
  const text = firstOf(filter, "text");
  const narrow = useNarrow();
  const columns = useMemo(
    () => [
      checks(select, all, plain ? (on) => (on ? setAll(true) : clear()) : undefined),
      ...required(text, narrow),
      ...optional
        .filter((c) => chosen[c.id] ?? (!c.hidden && (c.id !== "owner" || owner) && (c.id !== "tokens" || tokens)))
        .map((c) => (times === "absolute" && c.width === "84px" ? { ...c, width: "140px" } : c))
        .map((c) => (c.id === "created" && firstOf(filter, "id") === undefined ? { ...c, sort: byAge(filter, onChange) } : c)),
    ],
    [select, all, clear, plain, chosen, times, owner, tokens, text, narrow, filter, onChange],
  );
  const ids = useMemo(() => new Set(selected.keys()), [selected]);
  const open = useCallback((task: Task) => void navigate({ to: "/tasks/$id", params: { id: task.id } }), [navigate]);
  const show = useCallback((first: number, last: number) => list.show(first, last), [list]);
  const showNew = () => {
    if (list.dropped > 0) void list.restart();
    else list.release();
    table.current?.top();
  };

  const further = oldest ? "Search further" : "Search further back";
  if (list.count === 0) {
    if (list.error !== undefined) {
      return (
        <div className="tasks-error">
          <ErrorBox error={list.error} retry={() => void list.more()} title="The tasks were not read" />
        </div>
      );
    }
    if (list.ended) return <Nothing filter={filter} onChange={onChange} />;
    if (list.searched && !list.loading) {
      return (
        <EmptyState title="No message says this so far" action={<Button onClick={() => void list.more()}>{further}</Button>}>
          Searched the tasks created {oldest ? "before" : "since"} <Time at={list.searched} />. A filter by agent or time
          searches further at once.
        </EmptyState>
      );
    }
  }
  const selection: Selection = { tasks: selected, all, filter };
  return (
    <div
      className="tasks-list"
      onPointerEnter={(event) => {
        hovered.current = event.pointerType === "mouse";
        hold();
      }}
      onPointerLeave={() => {
        hovered.current = false;
        hold();
      }}
      onScrollCapture={(event) => {
        scrolled.current = event.target instanceof Element && event.target.scrollTop > 0;
        hold();
      }}
    >
      {(list.waiting > 0 || list.dropped > 0) && (
        <button type="button" className="tasks-new" onClick={showNew}>
          {list.waiting > 0 ? `${list.waiting.toLocaleString("en")} new` : oldest ? "Back to the oldest" : "Back to the newest"}
        </button>
      )}
      <DataTable
        handle={table}
        label="Tasks"
        columns={columns}
        rows={{ count: list.count, at: (i) => list.at(i), id: (t) => t.id }}
        onOpen={open}
        onVisible={show}
        selected={ids}
        onSelect={select}
        lines={2}
        loading={list.error === undefined && !list.ended && !(list.searched && !list.loading)}
        footer={
          list.error !== undefined ? (
            <ErrorBox error={list.error} retry={() => void list.more()} title="The next tasks were not read" />
          ) : list.ended ? (
            list.count > 20 && `That is all: ${(list.count + list.dropped).toLocaleString("en")} tasks.`
          ) : (
            <span className="tasks-searched">
              Searched the tasks created {oldest ? "before" : "since"} <Time at={list.searched} />
              <Button onClick={() => void list.more()}>{further}</Button>
            </span>
          )
        }
      />
      {(all || selected.size > 0) && (
        <Suspense>
          <BulkBar selection={selection} onAll={() => setAll(true)} onClear={clear} />
        </Suspense>
      )}
    </div>
  );
}

/** checks is the column that selects rows. */
function checks(
  select: (task: Task, index: number, range: boolean) => void,
  all: boolean,
  onAll: ((on: boolean) => void) | undefined,
): Column<Task> {
  return {
    id: "select",
    header: onAll ? (
      <input
        type="checkbox"
        className="tasks-check"
        aria-label="Select all that match"
        checked={all}
        onChange={(event) => onAll(event.target.checked)}
      />
    ) : (
      <span className="visually-hidden">Selected</span>
    ),
    width: "18px",
    narrow: true,
    cell: (task, { index, selected }) => (
      <input
        type="checkbox"
        className="tasks-check"
        aria-label={`Select ${visible(task.task_id)}`}
        checked={all || selected}
        onClick={(event) => select(task, index, event.shiftKey)}
        onChange={() => {}}
      />
    ),
  };
}

/** byAge turns the order of the list: only that of the creation has an index. */
function byAge(filter: TaskFilter, onChange: (filter: TaskFilter) => void): Column<Task>["sort"] {
  const oldest = firstOf(filter, "order") !== undefined;
  return {
    order: oldest ? "descending" : "ascending",
    help: oldest ? "Show the newest first" : "Show the oldest first",
    turn: () => onChange(toggle(filter, "oldest", "order")),
  };
}

/** required are the columns that say what a task is. */
function required(text: string | undefined, narrow: boolean): Column<Task>[] {
  return [
    { id: "state", header: "State", width: "118px", cell: (task) => <Badge state={task.state} /> },
    {
      id: "task",
      header: "Task",
      width: "minmax(120px, 4fr)",
      narrow: true,
      cell: (task) => <Words task={task} text={text} narrow={narrow} />,
    },
    {
      id: "status",
      header: "Status",
      width: "minmax(80px, 2fr)",
      // The badge says the rest.
      cell: (task) => (task.status_line?.text === stateNames[task.state] ? null : <StatusText task={task} />),
    },
  ];
}

/** Words are what the client asked for, and below it which task it is and why it failed. */
function Words({ task, text, narrow }: { task: Task; text: string | undefined; narrow: boolean }) {
  const said = line(task.said ?? "", 160);
  return (
    <span className="tasks-words">
      <Link
        to="/tasks/$id"
        params={{ id: task.id }}
        className="tasks-said"
        aria-label={`${said} ${visible(task.task_id)}`.trim()}
        title={said}
        preload={false}
      >
        {said ? <Marked text={said} mark={text} /> : <span className="muted">no words</span>}
      </Link>
      <span className="tasks-more">
        {narrow && <Badge state={task.state} />}
        {narrow && <span className="tasks-agent">{visible(task.agent)}</span>}
        <span className="mono" title={visible(task.task_id)}>
          {shortId(task.task_id)}
        </span>
        {task.held_at && <Tag tone="info">Held</Tag>}
        {task.cancel_requested_at && !isFinal(task.state) && <Tag tone="warn">Ending</Tag>}
        {task.retried_as && <Tag>Retried</Tag>}
        {task.reason && (
          <span className="tasks-reason" title={visible(task.reason)}>
            <Marked text={line(task.reason, 200)} mark={text} />
          </span>
        )}
      </span>
    </span>
  );
}

/** Marked shows a text in which what was searched for stands out. */
function Marked({ text, mark }: { text: string; mark: string | undefined }) {
  const at = mark ? text.toLowerCase().indexOf(mark.toLowerCase()) : -1;
  if (!mark || at < 0) return text;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + mark.length)}</mark>
      {text.slice(at + mark.length)}
    </>
  );
}

/** Lasted is how long a task took, or takes. */
function Lasted({ task }: { task: Task }) {
  const from = new Date(task.created_at).getTime();
  const end = isFinal(task.state) ? new Date(task.status_at).getTime() : undefined;
  const text = useShown(() => {
    const ms = Math.max(0, (end ?? Date.now()) - from);
    return duration(end === undefined ? Math.floor(ms / 1000) * 1000 : ms);
  });
  return <span className="muted">{text}</span>;
}

/** optional are the columns that the reader chooses. */
const optional: (Column<Task> & { header: string; hidden?: boolean })[] = [
  { id: "agent", header: "Agent", width: "minmax(80px, 1fr)", cell: (task) => visible(task.agent) },
  {
    id: "owner",
    header: "Owner",
    width: "minmax(70px, 0.9fr)",
    cell: (task) => <span className="muted">{visible([task.tenant, task.owner].filter(Boolean).join(" / ")) || "–"}</span>,
  },
  {
    id: "context",
    header: "Context",
    hidden: true,
    width: "minmax(70px, 0.9fr)",
    cell: (task) => (
      <span className="mono muted" title={visible(task.context_id)}>
        {shortId(task.context_id)}
      </span>
    ),
  },
  {
    id: "runs",
    header: "Runs",
    hidden: true,
    width: "44px",
    end: true,
    cell: (task) => <span className="muted">{task.runs}</span>,
  },
  { id: "duration", header: "Duration", width: "72px", end: true, cell: (task) => <Lasted task={task} /> },
  {
    id: "tokens",
    header: "Tokens",
    width: "56px",
    end: true,
    cell: (task) => (
      <span className="muted" title={task.cost ? `They cost ${money(task.cost)}` : "As its newest events report them"}>
        {task.tokens ? short(task.tokens) : "–"}
      </span>
    ),
  },
  { id: "changed", header: "Changed", hidden: true, width: "84px", end: true, cell: (task) => <Time at={task.status_at} /> },
  { id: "created", header: "Age", width: "84px", narrow: true, end: true, cell: (task) => <Time at={task.created_at} /> },
];

/** Nothing says why the list is empty, and what makes it less empty. */
function Nothing({ filter, onChange }: { filter: TaskFilter; onChange: (filter: TaskFilter) => void }) {
  if (without(filter, "order").length === 0) {
    return (
      <div className="tasks-none">
        <EmptyState title="No tasks yet">
          A task begins with a message to an agent. It shows here at once, and these cards go.
        </EmptyState>
        <Suspense>
          <First />
        </Suspense>
      </div>
    );
  }
  if (firstOf(filter, "id") !== undefined) {
    return (
      <EmptyState
        guide="filters"
        title="No task has this id"
        action={<Button onClick={() => onChange([])}>Show all tasks</Button>}
      >
        An id is the UUID of a task, or the whole id that its client chose. A purged task is gone, and you see only the tasks of
        the tenants that you may see.
      </EmptyState>
    );
  }
  return (
    <EmptyState
      guide="filters"
      title="No task matches"
      action={
        <div className="dialog-buttons">
          {firstOf(filter, "since") !== undefined && (
            <Button onClick={() => onChange(without(filter, "since"))}>Any time</Button>
          )}
          {statesOf(filter).length > 0 && <Button onClick={() => onChange(without(filter, "state"))}>Any state</Button>}
          <Button onClick={() => onChange([])}>Show all tasks</Button>
        </div>
      }
    >
      {firstOf(filter, "reason") !== undefined
        ? "No failed task of the filter has this reason, apart from numbers and ids in it."
        : firstOf(filter, "text") === undefined
          ? "Tasks that come to match show here at once. Names must be whole; words without a key search in messages."
          : "The first 500 events of all tasks of the filter were searched. Artifacts are not searched."}
    </EmptyState>
  );
}
