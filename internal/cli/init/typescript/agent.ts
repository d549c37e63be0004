import { agent } from "holdfast-agent";

// Between two messages of a task, no process holds it.
export const greeter = agent("my-agent", async (run) => {
  if (run.turn === 1) await run.ask("What is your name?");
  else await run.text(`Hello, ${run.message.text}!`);
});
