#!/usr/bin/env node
// Starts the binary of the package for this machine, such as holdfast-linux-x64, and ends as it does.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const musl = process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
const name = `holdfast-${process.platform}-${process.arch}${musl ? "-musl" : ""}`;
let binary;
try {
  binary = require.resolve(`${name}/bin/holdfast`);
} catch {
  console.error(`holdfast: the package ${name} is not installed.
There are packages for linux (x64, arm64) and darwin (x64, arm64). If this machine is one of these, install holdfast
again without --omit=optional.`);
  process.exit(1);
}
const server = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// Ctrl-C reaches the server by the terminal; other senders know only this process.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => server.kill(signal));
server.on("error", (error) => {
  console.error(`holdfast: ${binary} cannot be started: ${error.message}`);
  process.exit(1);
});
server.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
