#!/usr/bin/env node
// Guarded steps from Node: ./hold.mjs NAME STEPS
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// The boot clock in ms, with the most that the file leaves out.
const now = () => Math.round(parseFloat(readFileSync("/proc/uptime", "utf8")) * 1000) + 9;

class Hold {
  static async acquire(name, ...options) {
    const hold = new Hold();
    // A group of its own, so that a Ctrl-C is for this program alone.
    hold.process = spawn("leasehold", ["hold", ...options, name], { stdio: ["pipe", "pipe", "inherit"], detached: true });
    hold.ended = new Promise((resolve) => hold.process.on("close", resolve));
    hold.last = {};
    await new Promise((resolve) => {
      createInterface({ input: hold.process.stdout })
        .on("line", (line) => {
          hold.last = JSON.parse(line);
          if (hold.last.event !== "waiting") resolve();
        })
        .on("close", () => {
          hold.last = { ...hold.last, deadline_ms: 0 };
          resolve();
        });
    });
    hold.check();
    return hold;
  }

  // Throws unless the lease is held now, by the last deadline and the boot clock.
  check() {
    const left = (this.last.deadline_ms ?? 0) - now();
    if (!(0 < left && left <= this.last.ttl_ms)) throw new Error(`the lease is not held: ${JSON.stringify(this.last)}`);
    return this.last.token;
  }

  release() {
    this.process.stdin.end();
    return this.ended;
  }
}

// What must not be done without the lease. Your storage refuses a token lower than it has seen.
async function step(number, token) {
  console.log("step", number, "token", token, "at", now());
  await sleep(100);
}

const lease = await Hold.acquire(process.argv[2]);
try {
  for (let number = 1; number <= Number(process.argv[3]); number++) await step(number, lease.check());
} catch (error) {
  console.error(`stopped: ${error.message}`);
  process.exit(1);
}
await lease.release();
