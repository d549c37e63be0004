import { type ReactNode, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { TaskDetail } from "../api/schema";
import { Button } from "../components/Button";
import { ErrorBox } from "../components/ErrorBox";
import { Choice } from "../components/Panel";
import { isFinal } from "../lib/states";
import { duration } from "../lib/time";
import type { Story } from "./ConversationView";
import { type Known, merged } from "./feed";
import { loader } from "./log";
import { longestPause, Player } from "./player";
import type { Live } from "./useTask";
import "./Replay.css";

const speeds = [
  ["1", "1×"],
  ["4", "4×"],
  ["16", "16×"],
] as const;
/** step is how often the page shows what has come, in milliseconds. */
const step = 50;

export interface Replayed {
  task: TaskDetail;
  live: Live;
  story: Story;
  artifacts: { list: Known[] };
}

/** Replay shows the log of a task again at its own speed. children draw the page as it was at each moment. */
export function Replay({
  task,
  close,
  children,
}: {
  task: TaskDetail;
  close: () => void;
  children: (now: Replayed) => ReactNode;
}) {
  const from = Date.parse(task.created_at);
  const end = isFinal(task.state) ? Date.parse(task.status_at) : Date.now();
  // The log as it is when the replay begins.
  // biome-ignore lint/correctness/useExhaustiveDependencies: see above
  const player = useMemo(() => new Player(from, task.last_seq, loader(task.id)), [task.id]);
  const [playing, setPlaying] = useState(true);
  const [speed, setSpeed] = useState<(typeof speeds)[number][0]>("1");
  const [, show] = useState(0);
  useEffect(() => () => player.stop(), [player]);
  useEffect(() => {
    if (!playing) return;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      void player.advance((now - last) * Number(speed)).then(() => {
        if (player.over || player.error) setPlaying(false);
        show((n) => n + 1);
      });
      last = now;
    }, step);
    return () => clearInterval(timer);
  }, [player, playing, speed]);

  const { feed } = player;
  const tick = useSyncExternalStore(feed.log.subscribe, feed.log.snapshot);
  const now = useMemo((): Replayed => {
    const state = feed.story.findLast((e) => e.state)?.state ?? "submitted";
    return {
      task: { ...task, state },
      live: { state: player.over ? "ended" : "live", feed, tick },
      story: { events: [...feed.story], whole: feed.storyFrom === 0 },
      artifacts: { list: merged([], feed.known) },
    };
  }, [task, feed, tick, player.over]);
  const total = Math.max(end - from, 1);
  const at = player.over ? total : Math.min(total, player.at - from);
  return (
    <div className="replay">
      <section className="replay-bar" aria-label="Replay">
        <Button
          kind="primary"
          onClick={() => {
            if (!player.over) return setPlaying(!playing);
            void player.seek(from).then(() => setPlaying(true));
          }}
        >
          {player.over ? "Play again" : playing ? "Pause" : "Play"}
        </Button>
        <input
          type="range"
          aria-label="Moment of the log"
          aria-valuetext={duration(at)}
          min={0}
          max={total}
          step="any"
          value={at}
          onChange={(event) => {
            setPlaying(false);
            void player.seek(from + Number(event.target.value)).then(() => show((n) => n + 1));
          }}
        />
        <span className="replay-at">
          {duration(at)} of {duration(total)}
        </span>
        <Choice label="Speed" values={speeds} value={speed} onChange={setSpeed} />
        {player.cut > 0 && <span className="muted">Pauses are cut to {duration(longestPause)}.</span>}
        <Button kind="ghost" onClick={close}>
          Close the replay
        </Button>
      </section>
      {player.error !== undefined && <ErrorBox error={player.error} title="The log cannot be read" />}
      <div className="replay-page">{children(now)}</div>
    </div>
  );
}
