// How runs end, as people read it.

/** outcomes say why a run ended, for people. */
export const outcomes: Record<string, { text: string; tone: "good" | "bad" | "warn" | "info" | "neutral" }> = {
  running: { text: "runs now", tone: "info" },
  completed: { text: "completed the task", tone: "good" },
  failed: { text: "failed the task", tone: "bad" },
  rejected: { text: "rejected the task", tone: "bad" },
  canceled: { text: "was canceled", tone: "neutral" },
  "input-required": { text: "asked its client", tone: "warn" },
  "auth-required": { text: "asked for authentication", tone: "warn" },
  continued: { text: "ended its turn", tone: "good" },
  checkpoint: { text: "stored its progress", tone: "neutral" },
  waits: { text: "waits for a time", tone: "neutral" },
  calls: { text: "waits for its calls", tone: "neutral" },
  retry: { text: "failed, a retry follows", tone: "bad" },
  lost: { text: "lost its process", tone: "bad" },
  returned: { text: "was handed back by its process", tone: "warn" },
  away: { text: "found its agent away", tone: "warn" },
};

/** notes are entries of the log that end no run. */
export const notes: Record<string, string> = {
  resume: "A request to the resume URL began the next turn.",
  cancel: "The client asked to cancel the task.",
};
