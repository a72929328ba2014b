// A worker takes messages from a queue until SIGTERM: node worker.js PROTO ADDRESS QUEUE [CONCURRENCY]
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const CALL_MS = 10_000;
const POP_WAIT_MS = 1_000; // after SIGTERM the worker waits for its last pop
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 5_000;

const [proto, address, queue, concurrency = "4"] = process.argv.slice(2);
if (!queue) {
  console.error("usage: node worker.js PROTO ADDRESS QUEUE [CONCURRENCY]");
  process.exit(2);
}
const definition = loader.loadSync(proto, { longs: Number, defaults: true, oneofs: true });
const { Queue } = grpc.loadPackageDefinition(definition).weft.v1;
const client = new Queue(address, grpc.credentials.createInsecure(), {
  "grpc.max_reconnect_backoff_ms": PAUSE_MS_MAX, // gRPC's own is two minutes
});
let stopping = false;
let handled = 0;

// The work of one message: here the body says how many milliseconds it takes.
async function handle(message) {
  const [name, ms] = message.body.toString().split(" ");
  if (ms === undefined) throw new Error(`the body ${message.body} is not NAME MILLISECONDS`);
  await sleep(Number(ms));
  console.log("handled", name);
}

function call(method, request) {
  return new Promise((resolve, reject) => {
    const deadline = new Date(Date.now() + CALL_MS);
    client[method](request, { deadline }, (error, answer) => {
      if (error) reject(error);
      else resolve(answer);
    });
  });
}

// Makes a call until it succeeds, fails for good, or is no longer wanted. Weft says in the trailing
// metadata whether the same call may be made again; an error without it comes from the connection,
// which gRPC opens again by itself.
async function retried(method, request, wanted = () => true) {
  for (let pause = PAUSE_MS_MIN; ; pause = Math.min(2 * pause, PAUSE_MS_MAX)) {
    try {
      return await call(method, request);
    } catch (error) {
      if (!retriable(error) || !wanted()) throw error;
      console.error(`${error.message}; next attempt in ${pause} ms`);
      await sleep(pause);
    }
  }
}

function retriable(error) {
  const [said] = error.metadata?.get("weft-retriable") ?? [];
  if (said !== undefined) return said === "true";
  return [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED].includes(error.code);
}

// Handles one message and settles it. A settled message whose answer was lost is settled again:
// that is no error.
async function work(message) {
  const receipts = [message.receipt];
  let ended = false;
  const extend = async () => {
    const request = { queue, receipts, leaseMs: message.leaseMs };
    try {
      await retried("Extend", request, () => !ended);
    } catch (error) {
      if (!ended) console.error(`the lease was not extended: ${error.message}`);
    }
  };
  // The lease is extended while the work goes on, so that work may take longer.
  const timer = setInterval(extend, message.leaseMs / 3);
  try {
    await handle(message);
  } catch (error) {
    return giveBack(receipts, error.message);
  } finally {
    ended = true;
    clearInterval(timer);
  }
  try {
    const { lost } = await retried("Ack", { queue, receipts });
    if (lost.length) console.error(`${message.id} comes again: its lease was over`);
    else handled++;
  } catch (error) {
    console.error(`${message.id} comes again: ${error.message}`);
  }
}

async function giveBack(receipts, reason) {
  try {
    await retried("Nack", { queue, receipts, reason });
  } catch (error) {
    console.error(`${receipts.length} messages come again when their lease ends: ${error.message}`);
  }
}

// Pops what the worker can take, until SIGTERM; then finishes what is in hand and gives back the
// rest. The pop itself is not cancelled: it might have lent messages that nobody would see.
async function run(limit) {
  const inHand = new Set();
  try {
    while (!stopping) {
      const { messages } = await retried("Pop", { queue, limit, waitMs: POP_WAIT_MS });
      for (const [number, message] of messages.entries()) {
        while (inHand.size >= limit && !stopping) await Promise.race([...inHand, stopped]);
        if (stopping) {
          const rest = messages.slice(number);
          await giveBack(rest.map((each) => each.receipt), "the worker stops");
          console.log("gave back", rest.length);
          break;
        }
        const working = work(message).finally(() => inHand.delete(working));
        inHand.add(working);
      }
    }
  } finally {
    await Promise.all(inHand);
    console.log("stopped after", handled);
    client.close();
  }
}

const stopped = new Promise((resolve) => {
  for (const signal of ["SIGTERM", "SIGINT"]) {
    process.on(signal, () => {
      stopping = true;
      resolve();
    });
  }
});

run(Number(concurrency)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
