// Runs ONNX models with a package of npm, the first argument: onnxruntime-node, which is native, or onnxruntime-web, which is
// WebAssembly. Requests and results are as in onnx_check.py, without metadata, which the interface of these packages does not have.

"use strict";

const ort = require(process.argv[2]);

async function run(sessions, { path, inputs }) {
  if (!sessions.has(path)) {
    sessions.set(path, await ort.InferenceSession.create(path, { executionProviders: [process.argv[2] === "onnxruntime-web" ? "wasm" : "cpu"] }));
  }
  const feeds = {};
  for (const [name, { shape, data }] of Object.entries(inputs)) {
    feeds[name] = new ort.Tensor("float32", Float32Array.from(data), shape);
  }
  const outputs = {};
  for (const [name, tensor] of Object.entries(await sessions.get(path).run(feeds))) {
    outputs[name] = { shape: [...tensor.dims], data: Array.from(tensor.data, Number) };
  }
  return { outputs };
}

async function main() {
  if (ort.env.wasm) {
    ort.env.wasm.numThreads = 1;
  }
  const chunks = [];
  for await (const chunk of process.stdin) {
    chunks.push(chunk);
  }
  const sessions = new Map();
  const replies = [];
  for (const request of JSON.parse(Buffer.concat(chunks).toString())) {
    replies.push(await run(sessions, request));
  }
  process.stdout.write(JSON.stringify(replies), () => process.exit(0));
}

main().catch((fault) => {
  console.error(fault);
  process.exit(1);
});
