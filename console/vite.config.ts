import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The admin address of the server that `npm run dev` shows.
const admin = process.env.HOLDFAST_ADMIN ?? "http://127.0.0.1:9090";

export default defineConfig({
  base: "/console/",
  plugins: [react()],
  build: {
    outDir: "../internal/admin/console/dist",
    emptyOutDir: true,
    target: "es2022",
    // The policy of the page allows no data: fonts or styles, and a chunk of its own is cached longer.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    sourcemap: false,
  },
  server: {
    proxy: {
      // The server refuses writes of other origins, so the origin must be that of the server.
      "/admin": { target: admin, changeOrigin: true, headers: { origin: admin } },
    },
  },
  test: { include: ["src/**/*.test.ts", "src/**/*.test.tsx"], testTimeout: 60_000 },
} as Parameters<typeof defineConfig>[0]);
