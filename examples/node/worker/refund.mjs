// Asks, pays, waits for three days, and calls two other agents. It goes on after a crash.
import { agent, durable, serve } from "holdfast-agent";

const schema = { type: "object", required: ["approved"], properties: { approved: { type: "boolean" } } };

const refund = agent(
  "refund",
  durable(async (run) => {
    const order = await run.step("look up", () => ({ id: run.message.text, total: 5 }));
    const { approved } = await run.ask(`Refund ${order.total} EUR?`, { schema });
    if (!approved) return "Nothing was refunded.";
    const receipt = await run.step("pay", () => pay(order, run.idempotencyKey), { retries: 5 });
    await run.sleep({ days: 3 });
    const [feedback, survey] = await run.call(["feedback", order.id], ["survey", order.id]);
    return `Refunded: ${receipt.id}. ${feedback.text} ${survey.text}`;
  }),
);

/** Stands for a request with the header Idempotency-Key. */
const pay = async (order, key) => ({ id: `r-${order.id}`, key });

serve(refund);
