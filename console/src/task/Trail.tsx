import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { toast } from "../components/Toast";
import { describe, toSearch } from "../lib/filter";
import { placeOf } from "../lib/place";
import { useShortcut } from "../lib/shortcuts";
import "./Trail.css";

/** Trail leads from a task back to the list that the reader came from, and to the tasks beside it. */
export function Trail({ id, onRetry }: { id: string; onRetry: (() => void) | undefined }) {
  const navigate = useNavigate();
  const place = placeOf(id);
  const [busy, setBusy] = useState(false);
  const search = place ? toSearch(place.filter) : {};
  const go = async (by: number) => {
    if (!place || busy || place.index + by < 0) return;
    setBusy(true);
    const task = await place.list.reach(place.index + by);
    setBusy(false);
    if (task) void navigate({ to: "/tasks/$id", params: { id: task.id }, replace: true });
  };
  useShortcut(place && "j", "Next task of the list", "Task", () => void go(1));
  useShortcut(place && "k", "Previous task of the list", "Task", () => void go(-1));
  useShortcut("Escape", "Back to the list", "Task", () => void navigate({ to: "/tasks", search }));
  useShortcut(onRetry && "r", "Retry the task", "Task", () => onRetry?.());
  useShortcut("c", "Copy the link to the task", "Task", () => {
    const link = new URL(location.href);
    link.search = link.hash = "";
    navigator.clipboard.writeText(link.href).then(
      () => toast("The link is copied"),
      () => toast("The browser did not copy the link", link.href),
    );
  });
  const last = place?.list.ended && place.index === place.list.count - 1;
  return (
    <nav className="trail" aria-label="Place in the list">
      <Link to="/tasks" search={search}>
        Tasks{place && place.filter.length > 0 ? `: ${describe(place.filter)}` : ""}
      </Link>
      {place && (
        <>
          <span>
            {(place.list.dropped + place.index + 1).toLocaleString("en")} of{" "}
            {(place.list.dropped + place.list.count).toLocaleString("en")}
            {!place.list.ended && "+"}
          </span>
          <button type="button" aria-label="Previous task: k" disabled={place.index === 0} onClick={() => void go(-1)}>
            <Arrow up />
            <kbd>k</kbd>
          </button>
          <button type="button" aria-label="Next task: j" disabled={last} onClick={() => void go(1)}>
            <Arrow />
            <kbd>j</kbd>
          </button>
        </>
      )}
    </nav>
  );
}

function Arrow({ up }: { up?: boolean }) {
  return (
    <svg viewBox="0 0 10 10" aria-hidden="true">
      <path d={up ? "M5 9V1.5M2 4.5l3-3 3 3" : "M5 1v7.5M2 5.5l3 3 3-3"} />
    </svg>
  );
}
