// Plans a trip: asks, streams, and goes on after a crash.
import { agent, serve } from "holdfast-agent";

serve(
  agent("trip", async (run) => {
    const city = run.message.text.trim();
    if (run.turn === 1 || city === "") {
      await run.ask("Where to?");
      return;
    }
    const from = run.lastCheckpoint?.day ?? 1; // that an earlier try has reached
    for (let day = from; day <= 3; day++) {
      await run.text(`Day ${day} in ${city}. `, { name: "plan", last: day === 3 });
      await run.checkpoint({ day: day + 1 });
    }
    await run.complete(`Enjoy ${city}!`);
  }),
);
