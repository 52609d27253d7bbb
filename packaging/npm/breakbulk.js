#!/usr/bin/env node
// Starts the program that the package for this system carries.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `breakbulk-${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "breakbulk.exe" : "breakbulk";

let program;
try {
  program = require.resolve(`${name}/${file}`);
} catch {
  console.error(
    `breakbulk: there is no program for ${process.platform}-${process.arch} here: the package ${name} is missing. ` +
      "Install without --no-optional, or build it: cargo install breakbulk-cli" +
      (process.platform === "linux" ? ". On Linux the package needs glibc, which Alpine does not have" : ""),
  );
  process.exit(2);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// Whoever ends this process means the program. A terminal signals both itself.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    if (!(signal === "SIGINT" && process.stdin.isTTY)) child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`breakbulk: ${program} cannot be started: ${error.message}`);
  process.exit(2);
});
child.on("exit", (code, signal) => {
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});
