// Refunds an order: looks it up, asks, pays, and hears three days later what the customer says. It goes on after a crash.
import { agent, durable, Fail, serve } from "holdfast-agent";

const orders = new Map([["o-1", 5]]);

serve(
  agent(
    "refund",
    durable(async (run) => {
      const order = await run.step("look up", () => {
        const id = run.message.text.trim();
        if (!orders.has(id)) throw new Fail(`There is no order ${id}.`);
        return { id, total: orders.get(id) };
      });
      const { approved } = await run.ask(`Refund ${order.total} EUR?`, {
        schema: { type: "object", required: ["approved"], properties: { approved: { type: "boolean" } } },
      });
      if (!approved) return "Nothing was refunded.";
      const receipt = await run.step("pay", () => pay(order, run.idempotencyKey), { retries: 5 });
      await run.text(`Refunded: ${receipt.id}. `);
      await run.sleep({ seconds: Number(process.env.SLEEP ?? 3 * 24 * 3600) });
      const [feedback, survey] = await run.call(["feedback", order.id], ["survey", order.id]);
      return `${feedback.text} ${survey.text}`;
    }),
  ),
);

/** Stands for a request with the header Idempotency-Key. */
async function pay(order, key) {
  return { id: `r-${order.id}`, key };
}
