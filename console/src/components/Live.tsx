import type { LiveState } from "../api/live";
import "./Live.css";

const texts: Record<LiveState, [string, string]> = {
  connecting: ["Connecting", "The live list is about to begin."],
  live: ["Live", "Changes show at once."],
  cut: ["Reconnecting", "The stream was cut. It goes on after the last change that arrived."],
  paused: ["Paused", "The tab was hidden. It goes on when you look."],
  ended: ["Ended", "There will be no more changes."],
};

/** Live says whether what is shown is followed. */
export function Live({ state }: { state: LiveState }) {
  const [word, help] = texts[state];
  return (
    <span className="live" data-state={state} title={help}>
      <span className="live-dot" aria-hidden="true" />
      <span role="status">{word}</span>
    </span>
  );
}
