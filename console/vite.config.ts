import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// The admin address of the server that `npm run dev` shows.
const admin = process.env.HOLDFAST_ADMIN ?? "http://127.0.0.1:9090";

// The binary embeds the worker of pdf.js compressed, and the server serves it under its plain name. It changes only with the
// library; what changes often stays text, of which a commit stores the difference.
const compressed: Plugin = {
  name: "compressed",
  generateBundle(_, bundle) {
    for (const file of Object.values(bundle)) {
      if (file.type !== "asset" || !file.fileName.endsWith(".js")) continue;
      file.source = gzipSync(file.source, { level: 9 });
      file.fileName += ".gz";
    }
  },
};

export default defineConfig({
  base: "/console/",
  plugins: [react(), compressed],
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
