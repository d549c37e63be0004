import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: process.env.SCREENSHOTS ? ["test/screenshots.ts", "test/moving.ts"] : ["test/**/*.test.ts"],
    // It takes minutes, and make console-heap runs it.
    exclude: process.env.CONSOLE_HEAP ? [] : ["test/heap.test.ts"],
    testTimeout: 180_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 45_000 } },
    // A file has a server, a database and a browser of its own.
    maxWorkers: 2,
  },
});
