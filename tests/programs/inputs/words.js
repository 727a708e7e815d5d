// Objects, buffers, JSON, compression, hashing, worker threads and a child process: prints only what is the same in every run.
"use strict";
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const { execFileSync } = require("child_process");
const crypto = require("crypto");
const fs = require("fs");
const os = require("os");
const path = require("path");
const zlib = require("zlib");

const digest = (data) => crypto.createHash("sha256").update(data).digest("hex");

function makeRoll(seed) {
  return (limit) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % limit;
  };
}

function work(seed) {
  const roll = makeRoll(seed);
  const count = new Map();
  for (let n = 0; n < 60000; n++) {
    const word = "w" + roll(9000) + "x".repeat(roll(40));
    count.set(word, (count.get(word) || 0) + 1);
  }
  const buffers = [];
  for (let n = 0; n < 10000; n++) {
    buffers[n % 1000] = Buffer.alloc(roll(9000), n % 251);
  }
  const words = [...count].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return [words.length, words.slice(0, 5).join(" "), digest(Buffer.concat(buffers)), digest(JSON.stringify(words))].join(" ");
}

async function main() {
  console.log(work(1));
  const text = JSON.stringify(Array.from({ length: 60000 }, (_, n) => ({ id: n, name: "n".repeat(n % 50), list: [n, n * 2] })));
  for (const [pack, unpack] of [["gzipSync", "gunzipSync"], ["brotliCompressSync", "brotliDecompressSync"]]) {
    const options = pack === "brotliCompressSync" ? { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } } : {};
    const packed = zlib[pack](text, options);
    console.log(pack, packed.length, zlib[unpack](packed).toString() === text);
  }
  console.log(text.replace(/"id":(\d+)/g, (_, id) => `"id":${id * 2}`).length, JSON.parse(text).length);

  const workers = [1, 2, 3].map((seed) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.on("message", resolve);
    worker.on("error", reject);
  }));
  for (const line of await Promise.all(workers)) console.log(line);

  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "js-"));
  await Promise.all(Array.from({ length: 200 }, (_, n) => fs.promises.writeFile(path.join(folder, String(n)), text.slice(0, n * 500))));
  const sizes = await Promise.all(Array.from({ length: 200 }, async (_, n) => (await fs.promises.readFile(path.join(folder, String(n)))).length));
  console.log(sizes.reduce((a, b) => a + b, 0));
  fs.rmSync(folder, { recursive: true });

  console.log(execFileSync(process.execPath, ["-e", "console.log([...Array(100000).keys()].join().length)"]).toString().trim());
  console.log(crypto.pbkdf2Sync("secret", "salt", 20000, 64, "sha512").toString("hex"));
}

if (isMainThread) main().catch((error) => { console.error(error); process.exitCode = 1; });
else parentPort.postMessage(work(workerData));
