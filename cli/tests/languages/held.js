// Holds 64 MiB: "heap", objects of V8, or "buffers", which lie outside of its heap.
const kept =
  process.argv[2] === "heap"
    ? Array.from({ length: 64 * 1024 }, (_, i) => Array(128).fill(i))
    : Array.from({ length: 64 }, () => Buffer.alloc(1 << 20, 1));
console.log("ready");
process.stdin.resume();
