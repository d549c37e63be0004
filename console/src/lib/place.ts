// Where the reader is in a list of tasks, so that a page of a task knows the ones beside it.
import type { TaskFilter } from "./filter";
import type { TaskList } from "./taskList";

export interface Place {
  filter: TaskFilter;
  list: TaskList;
}

let newest: Place | undefined;

/** keepPlace remembers the list that the reader looks at. A reload forgets it. */
export function keepPlace(place: Place): void {
  newest = place;
}

/** placeOf returns the list that has a task in memory. */
export function placeOf(id: string): (Place & { index: number }) | undefined {
  const index = newest?.list.indexOf(id) ?? -1;
  return newest && index >= 0 ? { ...newest, index } : undefined;
}

/** recent are the first tasks of the newest list. */
export function recent(): NonNullable<ReturnType<TaskList["at"]>>[] {
  return Array.from({ length: Math.min(newest?.list.count ?? 0, 50) }, (_, i) => newest?.list.at(i)).filter(
    (t) => t !== undefined,
  );
}
