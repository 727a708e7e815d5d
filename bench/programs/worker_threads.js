// Workers fill, compress, inflate and hash buffers, and pass trees of objects back: memory outside V8's own heap.
//
//     worker_threads.js WORKERS ROUNDS
"use strict";
const assert = require("assert");
const crypto = require("crypto");
const zlib = require("zlib");
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");

const BLOCKS = 40;

function tree(depth, seed) {
  return depth === 0 ? { leaf: `leaf ${seed}` } : { left: tree(depth - 1, 2 * seed), right: tree(depth - 1, 2 * seed + 1), seed };
}

function leaves(node) {
  return node.leaf ? 1 : leaves(node.left) + leaves(node.right);
}

function work(number, rounds) {
  const sum = crypto.createHash("sha256");
  let kept = [];
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < BLOCKS; i++) {
      const block = Buffer.alloc(1000 + ((number * 7919 + round * 104729 + i * 1299709) % 60000), `${number} ${round} ${i} `);
      const packed = zlib.deflateSync(block, { level: 1 });
      assert(zlib.inflateSync(packed).equals(block));
      kept.push(packed);
      sum.update(block);
    }
    const names = JSON.parse(JSON.stringify(kept.map((one, i) => ({ name: `block ${i}`, text: one.toString("base64") }))));
    names.forEach((one, i) => assert(Buffer.from(one.text, "base64").equals(kept[i])));
    kept = kept.filter((_, i) => i % 3 === 0);
    parentPort.postMessage({ nodes: tree(8, round), bytes: new Uint8Array(50000 + round).fill(round) });
  }
  parentPort.postMessage({ sum: sum.digest("hex") });
}

function main(workers, rounds) {
  const received = Array(workers).fill(0);
  const sums = Array(workers);
  for (let number = 0; number < workers; number++) {
    const worker = new Worker(__filename, { workerData: { number, rounds } });
    worker.on("message", (message) => {
      if (message.sum) {
        sums[number] = message.sum;
        return;
      }
      assert.strictEqual(leaves(message.nodes), 256);
      assert.strictEqual(message.bytes.length, 50000 + received[number]++);
    });
    worker.on("error", (error) => {
      throw error;
    });
  }
  process.on("exit", (code) => {
    if (code !== 0) return;
    assert.deepStrictEqual(received, Array(workers).fill(rounds));
    console.log(crypto.createHash("sha256").update(sums.join()).digest("hex").slice(0, 16));
  });
}

if (isMainThread) main(Number(process.argv[2]), Number(process.argv[3]));
else work(workerData.number, workerData.rounds);
