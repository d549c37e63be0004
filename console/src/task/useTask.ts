import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { get } from "../api/client";
import { type LiveState, useLive } from "../api/live";
import type { Event, TaskDetail } from "../api/schema";
import { isFinal } from "../lib/states";
import { artifactOf } from "./artifacts";
import { Feed, merged } from "./feed";
import { loader } from "./log";

const storyPage = 200;
const kinds = ["message", "status", "run"] as const;

/** useDetail reads the facts of a task. */
export function useDetail(id: string) {
  return useQuery({
    queryKey: ["task", id],
    queryFn: ({ signal }) => get("/tasks/{id}", { path: { id }, signal }),
    // A wait for a worker, a timer or a hold changes no event of the log.
    refetchInterval: (query) => (query.state.data && !isFinal(query.state.data.state) ? 10_000 : false),
  });
}

/** useRuns reads the runs of a task. */
export function useRuns(id: string) {
  return useQuery({
    queryKey: ["task", id, "runs"],
    queryFn: ({ signal }) => get("/tasks/{id}/runs", { path: { id }, signal }),
  });
}

/** stored is the query for one event of the log. */
export function stored(id: string, seq: number) {
  return {
    queryKey: ["task", id, "stored", seq],
    queryFn: async ({ signal }: { signal: AbortSignal }) =>
      (await get("/tasks/{id}/log", { path: { id }, query: { after: seq - 1, limit: 1 }, signal })).events[0],
    staleTime: Number.POSITIVE_INFINITY,
  };
}

/** useLineage reads the calls of a task, and its caller. */
export function useLineage(id: string) {
  return useQuery({
    queryKey: ["task", id, "lineage"],
    queryFn: ({ signal }) => get("/tasks/{id}/lineage", { path: { id }, signal }),
  });
}

export interface Live {
  state: LiveState;
  feed: Feed;
  /** tick changes whenever the feed does. */
  tick: number;
}

/** useFeed follows the log of a task, from where it was when the page opened. */
export function useFeed(task: TaskDetail): Live {
  const client = useQueryClient();
  const id = task.id;
  // The first state of the task decides: what follows comes by the stream.
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new feed for a new task only
  const feed = useMemo(() => new Feed(task.last_seq, loader(id)), [id]);
  const over = useRef(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: as above
  const path = useMemo(() => (isFinal(task.state) ? undefined : `/tasks/${encodeURIComponent(id)}/log/stream`), [id]);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const refresh = () => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void client.invalidateQueries({
        queryKey: ["task", id],
        predicate: (q) => q.queryKey[2] !== "story" && q.queryKey[2] !== "artifact",
      });
    }, 400);
  };
  const state = useLive(path, {}, `${id} ${path ?? ""}`, {
    events: ["log"],
    from: String(feed.log.lastSeq),
    on: (name, data) => {
      if (name === "log") {
        const e = data as Event;
        if (feed.add(e) && e.kind !== "artifact") refresh();
      }
      if (name === "end") {
        over.current = true;
        feed.log.end((data as { state: TaskDetail["state"] | "deleted" }).state);
        refresh();
      }
    },
    onState: (next) => {
      if (next === "cut") feed.log.broke(feed.log.lastSeq);
      if (next === "live") feed.log.resumed();
    },
  });
  const tick = useSyncExternalStore(feed.log.subscribe, feed.log.snapshot);
  return { state: path ? state : "ended", feed, tick };
}

/** useStory reads the events that are no chunks, the newest first, and adds those of the stream. */
export function useStory(task: TaskDetail, live: Live) {
  const client = useQueryClient();
  const query = useInfiniteQuery({
    queryKey: ["task", task.id, "story"],
    initialPageParam: undefined as number | undefined,
    queryFn: ({ pageParam, signal }) =>
      get("/tasks/{id}/log", {
        path: { id: task.id },
        query: { order: "desc", limit: storyPage, kind: [...kinds], before: pageParam },
        signal,
      }),
    getNextPageParam: (last) => last.next,
    // The stream adds what is new.
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  // The feed forgets old events of the stream. The pages before them would end at a gap, so the page forgets those, too. The
  // button for earlier events reads both again.
  const from = live.feed.storyFrom;
  useEffect(() => {
    if (from === 0) return;
    const queryKey = ["task", task.id, "story"];
    void client.cancelQueries({ queryKey }).then(() => {
      client.setQueryData(queryKey, { pages: [{ events: [], next: from }], pageParams: [undefined] });
    });
  }, [client, task.id, from]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: tick stands for the events of the stream
  const events = useMemo(() => {
    const all: Event[] = (query.data?.pages ?? []).flatMap((p) => p.events).reverse();
    const newest = all.at(-1)?.seq ?? 0;
    const story = live.feed.story;
    if (from > 0 && newest < from && query.data?.pages[0]?.next !== from) return story; // a gap, until the pages are forgotten
    return [...all, ...story.filter((e) => e.seq > newest)];
  }, [query.data, live.tick, live.feed, from]);
  return { events, whole: query.isSuccess && !query.hasNextPage, query };
}

/** useArtifacts lists the artifacts, with those that the stream has begun. */
export function useArtifacts(task: TaskDetail, live: Live) {
  const query = useQuery({
    queryKey: ["task", task.id, "artifacts"],
    queryFn: ({ signal }) => get("/tasks/{id}/artifacts", { path: { id: task.id }, query: { limit: 500 }, signal }),
    staleTime: 30_000,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: tick stands for the events of the stream
  const list = useMemo(() => merged(query.data?.artifacts ?? [], live.feed.known), [query.data, live.tick, live.feed]);
  return { list, more: query.data?.more ?? false, query };
}

/** useArtifact reads an artifact, and follows it while it grows. */
export function useArtifact(taskId: string, id: string, live: Live) {
  const [round, setRound] = useState(0);
  const have = live.feed.artifact(id);
  const newest = live.feed.known.get(id)?.seq ?? 0;
  const query = useQuery({
    queryKey: ["task", taskId, "artifact", id, round],
    queryFn: async ({ signal }) =>
      artifactOf(await get("/tasks/{id}/artifacts/{artifact}", { path: { id: taskId, artifact: id }, signal })),
    enabled: !have,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  // It grew faster than it was read, or the feed has forgotten it since.
  const behind = !have && query.data !== undefined && query.data.seq < newest;
  useEffect(() => {
    if (query.data && (behind || !live.feed.take(query.data))) {
      const timer = setTimeout(() => setRound((r) => r + 1), 1000);
      return () => clearTimeout(timer);
    }
  }, [query.data, live.feed, behind]);
  return { artifact: live.feed.artifact(id) ?? query.data, query };
}
