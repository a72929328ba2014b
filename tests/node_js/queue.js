// A client in another language, with nothing but proto/weft.proto: node queue.js HOST:PORT PROTO.
// It creates a queue, pushes, pops, acks, provokes an error and reads a stream. Any surprise throws.
"use strict";

const assert = require("node:assert/strict");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, proto] = process.argv.slice(2);
const options = { longs: Number, defaults: true, oneofs: true };
const weft = grpc.loadPackageDefinition(loader.loadSync(proto, options)).weft.v1;
const credentials = grpc.credentials.createInsecure();
const queue = new weft.Queue(address, credentials);
const table = new weft.Table(address, credentials);
const cluster = new weft.Cluster(address, credentials);

function call(client, method, request) {
  const deadline = new Date(Date.now() + 10_000);
  return new Promise((resolve, reject) => {
    client[method](request, { deadline }, (error, response) =>
      error ? reject(error) : resolve(response),
    );
  });
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return { status: error.code, weft: error.metadata.get("weft-code")[0],
             retriable: error.metadata.get("weft-retriable")[0] };
  }
  throw new Error("the call should have failed");
}

async function pushAndPop() {
  const settings = { leaseMs: 5000 };
  assert.equal((await call(queue, "CreateQueue", { queue: "js", settings })).created, true);
  assert.equal((await call(queue, "CreateQueue", { queue: "js", settings })).created, false);

  const messages = [
    { body: Buffer.from("one"), headers: { language: "js", "ключ": "значение" } },
    { body: Buffer.from([0, 255, 128]), key: "k" },
  ];
  const push = { queue: "js", messages, producer: 42, batch: 7 };
  const pushed = await call(queue, "Push", push);
  assert.equal(pushed.ids.length, 2);
  assert.equal(pushed.durability, "disk");
  const again = await call(queue, "Push", push);
  assert.equal(again.duplicate, true);
  assert.deepEqual(again.ids, pushed.ids);

  const popped = (await call(queue, "Pop", { queue: "js", limit: 10, waitMs: 1000 })).messages;
  assert.deepEqual(popped.map((message) => message.id), pushed.ids);
  assert.equal(popped[0].body.toString(), "one");
  assert.deepEqual({ ...popped[0].headers }, messages[0].headers);
  assert.deepEqual(popped[1].body, messages[1].body);
  assert.equal(popped[1].key, "k");
  assert.equal(popped[0].deliveries, 1);

  const [first, second] = popped.map((message) => message.receipt);
  assert.equal((await call(queue, "Nack", { queue: "js", receipts: [first] })).done, 1);
  assert.equal((await call(queue, "Ack", { queue: "js", receipts: [second] })).done, 1);
  const stale = await call(queue, "Ack", { queue: "js", receipts: [first, second] });
  assert.equal(stale.already, 1);
  assert.deepEqual(stale.lost, [first]);
}

function consume() {
  // The nacked message comes again, over the stream.
  return new Promise((resolve, reject) => {
    const stream = queue.Consume({ queue: "js", limit: 1 });
    stream.on("error", (error) => {
      if (error.code !== grpc.status.CANCELLED) reject(error);
    });
    stream.on("data", async ({ messages: [message] }) => {
      try {
        assert.equal(message.body.toString(), "one");
        assert.equal(message.deliveries, 2);
        const settled = await call(queue, "Ack", { queue: "js", receipts: [message.receipt] });
        assert.equal(settled.done, 1);
        stream.cancel();
        resolve();
      } catch (error) {
        reject(error);
      }
    });
  });
}

async function errors() {
  assert.deepEqual(await failure(call(queue, "Pop", { queue: "absent", limit: 1 })), {
    status: grpc.status.NOT_FOUND, weft: "QUEUE_NOT_FOUND", retriable: "false",
  });
  assert.deepEqual(await failure(call(queue, "CreateQueue", { queue: "no spaces" })), {
    status: grpc.status.INVALID_ARGUMENT, weft: "INVALID_ARGUMENT", retriable: "false",
  });
  const other = await failure(call(queue, "CreateQueue", { queue: "js" }));
  assert.equal(other.weft, "QUEUE_EXISTS");
}

async function rest() {
  await call(table, "Insert", { key: "k", value: Buffer.from("v") });
  assert.equal((await call(table, "Lookup", { key: "k" })).value.toString(), "v");
  assert.equal((await call(cluster, "View", {})).nodes[0].grpc, address);
  const left = await call(queue, "DescribeQueue", { queue: "js" });
  assert.equal(left.ready + left.leased + left.delayed, 0);
  assert.equal(left.acked, 2);
}

async function main() {
  await pushAndPop();
  await consume();
  await errors();
  await rest();
  for (const client of [queue, table, cluster]) client.close();
  console.log("node.js: ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
