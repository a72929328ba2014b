// The Node.js side of `python -m bench.languages`: node bench.js PROTO TASK, where TASK is JSON.
//
// Each of `in_flight` callers pushes one message, pops one and acks it, for the given time. The
// program prints {"ready":true} when it is warm, waits for a line, and prints the result.
"use strict";

const { once } = require("node:events");
const { randomBytes } = require("node:crypto");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const CALL_MS = 60_000;
const WARM_UP_MS = 300;
const [proto, given] = process.argv.slice(2);
const task = JSON.parse(given);
const definition = loader.loadSync(proto, { longs: Number, defaults: true });
const { Queue } = grpc.loadPackageDefinition(definition).weft.v1;
const client = new Queue(task.address, grpc.credentials.createInsecure());
const { queue } = task;

function call(method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: Date.now() + CALL_MS }, (error, answer) => {
      if (error) reject(error);
      else resolve(answer);
    });
  });
}

let batch = 0;

async function caller(until, body, producer, samples) {
  while (performance.now() < until) {
    const began = performance.now();
    await call("Push", { queue, messages: [{ body }], producer, batch: ++batch });
    samples.push((performance.now() - began) * 1000);
    const { messages } = await call("Pop", { queue, limit: 1, waitMs: 10_000 });
    if (messages.length !== 1) throw new Error("no message came, though one was pushed");
    const settled = await call("Ack", { queue, receipts: [messages[0].receipt] });
    if (settled.done !== 1) throw new Error("a receipt was lost");
  }
}

async function run(milliseconds, producer) {
  const body = randomBytes(task.size);
  const samples = [];
  const until = performance.now() + milliseconds;
  await Promise.all(
    Array.from({ length: task.in_flight }, () => caller(until, body, producer, samples)),
  );
  return samples;
}

function cpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

async function main() {
  // An exact number of JavaScript has at most 53 bits.
  const producer = randomBytes(6).readUIntBE(0, 6);
  await call("CreateQueue", { queue });
  await run(WARM_UP_MS, producer);
  console.log(JSON.stringify({ ready: true }));
  await once(process.stdin, "data");
  process.stdin.pause();
  const cpu = cpuSeconds();
  const began = performance.now();
  const samples = (await run(task.seconds * 1000, producer)).sort((a, b) => a - b);
  const result = {
    messages: samples.length,
    calls: 3 * samples.length,
    seconds: (performance.now() - began) / 1000,
    p50_us: samples[Math.floor(0.5 * (samples.length - 1))],
    p99_us: samples[Math.floor(0.99 * (samples.length - 1))],
    client_cpu_s: cpuSeconds() - cpu,
  };
  const { ready, leased } = await call("DescribeQueue", { queue });
  if (ready + leased) throw new Error(`${ready + leased} messages are left, though all were acked`);
  await call("DeleteQueue", { queue });
  console.log(JSON.stringify(result));
  client.close();
}

main().catch((error) => {
  console.log(JSON.stringify({ error: { message: error.message } }));
  process.exit(1);
});
