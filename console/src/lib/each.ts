import { ApiError } from "../api/client";

/** each acts on some things, one request each, a few at a time: the server has other operators. It throws if some were not done. */
export async function each<T>(
  things: readonly T[],
  name: (one: T) => string,
  act: (one: T) => Promise<unknown>,
): Promise<void> {
  const queue = [...things];
  const failed: string[] = [];
  const lane = async () => {
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) {
      try {
        await act(one);
      } catch (error) {
        failed.push(`${name(one)}: ${error instanceof Error ? error.message : error}`);
      }
    }
  };
  await Promise.all(Array.from({ length: 4 }, lane));
  if (failed.length === 0) return;
  throw new ApiError({
    title: `Not done: ${failed.length} of ${things.length}`,
    status: 409,
    reason: "conflict",
    detail: failed.slice(0, 5).join("; ") + (failed.length > 5 ? " …" : ""),
  });
}
