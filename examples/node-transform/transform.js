// Consume, transform, produce, exactly once: node transform.js PROTO HOST:PORT[,HOST:PORT...] FROM TO [MESSAGES]
// Each lot of messages is one commit: its acks, its outputs, and a counter in the hash table.
"use strict";

const { randomBytes } = require("node:crypto");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [proto, addresses, from, to, wanted = "0"] = process.argv.slice(2);
const options = { longs: Number, defaults: true, oneofs: true };
const weft = grpc.loadPackageDefinition(loader.loadSync(proto, options)).weft.v1;
const nodes = addresses
  .split(",")
  .map((address) => new weft.Queue(address, grpc.credentials.createInsecure()));
const producer = parseInt(randomBytes(6).toString("hex"), 16); // 48 bits: exact as a number
let number = 0;
let stopped = false;
process.on("SIGTERM", () => (stopped = true));

function once(node, method, request) {
  const deadline = new Date(Date.now() + 5_000);
  return new Promise((resolve, reject) => {
    node[method](request, { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

function retriable(error) {
  const [said] = error.metadata?.get("weft-retriable") ?? [];
  if (said !== undefined) return said === "true";
  return [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED].includes(error.code);
}

// Repeats a call, at the next node after a failure.
async function call(method, request) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await once(nodes[attempt % nodes.length], method, request);
    } catch (error) {
      if (!retriable(error) || attempt > 300) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.min(1000, 50 * 2 ** attempt)));
    }
  }
}

// One commit. Its name makes a repeated call safe: the node answers `already`, and does nothing.
async function commit(messages) {
  const request = {
    acks: [{ queue: from, receipts: messages.map((message) => message.receipt) }],
    pushes: [{ queue: to, messages: messages.map((message) => ({ body: transform(message.body) })) }],
    writes: [{ append: { key: `transformed/${to}`, value: Buffer.from(`${messages.length},`) } }],
    name: { producer, number: ++number },
  };
  try {
    await call("Commit", request);
    return messages.length;
  } catch (error) {
    const [code] = error.metadata?.get("weft-code") ?? [];
    if (code !== "LEASE_LOST") throw error;
    return 0; // nothing was changed: another worker gets the messages
  }
}

function transform(body) {
  return Buffer.from(body.toString().toUpperCase());
}

// The messages of a commit are of one partition: the first two bytes of a receipt.
function lots(messages) {
  const found = new Map();
  for (const message of messages) {
    const partition = message.receipt.readUInt16BE(0);
    if (!found.has(partition)) found.set(partition, []);
    found.get(partition).push(message);
  }
  return [...found.values()];
}

async function main() {
  let done = 0;
  while (!stopped && (wanted === "0" || done < Number(wanted))) {
    const { messages } = await call("Pop", { queue: from, limit: 100, waitMs: 1000 });
    for (const lot of lots(messages)) done += await commit(lot);
  }
  for (const node of nodes) node.close();
  console.log(`transformed ${done}`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
