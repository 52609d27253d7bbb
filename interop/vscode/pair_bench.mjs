// How fast two RPCProtocols of VS Code talk to each other: in memory, and over loopback TCP with a
// process at each end. Tells one line of JSON: calls a second and bytes a second, best of the rounds.

import { fork } from "node:child_process";
import net from "node:net";
import { fileURLToPath } from "node:url";
import { createProxyIdentifier, Emitter, Protocol, RPCProtocol, VSBuffer } from "./original.mjs";
import { TcpSocket } from "./sockets.mjs";

const PIPELINED = 1000;
const SEQUENTIAL = 1000;
// The original waits a timer's tick before each write, so this is slow.
const SEQUENTIAL_TCP = 100;
const LARGE = 16_000_000;
const ROUNDS = 50;
// Of large buffers, and of sequential calls over TCP.
const FEW_ROUNDS = 15;

const CALLEE = createProxyIdentifier("Callee");

class Callee {
  $add(left, right) {
    return left + right;
  }

  $size(buffer) {
    return buffer.byteLength;
  }
}

if (process.argv[2] === "serve") {
  const server = net.createServer((stream) => {
    new RPCProtocol(new Protocol(new TcpSocket(stream))).set(CALLEE, new Callee());
  });
  server.listen(0, "127.0.0.1", () => process.send(server.address().port));
  process.on("disconnect", () => process.exit(0));
} else {
  const memory = inMemory();
  const told = {
    memoryPipelined: await calls(memory, PIPELINED, pipelined),
    memorySequential: await calls(memory, SEQUENTIAL, sequential),
  };
  const [tcp, end] = await overTcp();
  told.tcpPipelined = await calls(tcp, PIPELINED, pipelined);
  told.tcpSequential = await calls(tcp, SEQUENTIAL_TCP, sequential, FEW_ROUNDS);
  told.tcpBytes = await large(tcp);
  console.log(JSON.stringify(told));
  end();
  process.exit(0);
}

// A message is there as soon as it is sent, which is the fastest path there can be.
function inMemory() {
  const [up, down] = [new Emitter(), new Emitter()];
  const caller = new RPCProtocol({ onMessage: down.event, send: (message) => up.fire(message) });
  const callee = new RPCProtocol({ onMessage: up.event, send: (message) => down.fire(message) });
  callee.set(CALLEE, new Callee());
  return caller.getProxy(CALLEE);
}

async function overTcp() {
  const child = fork(fileURLToPath(import.meta.url), ["serve"]);
  const port = await new Promise((resolve) => child.once("message", resolve));
  const stream = net.connect({ host: "127.0.0.1", port });
  await new Promise((resolve, reject) => stream.once("connect", resolve).once("error", reject));
  const caller = new RPCProtocol(new Protocol(new TcpSocket(stream)));
  return [caller.getProxy(CALLEE), () => child.disconnect()];
}

async function calls(callee, count, round, rounds = ROUNDS) {
  let best = Infinity;
  for (let number = 0; number < rounds; number++) {
    const start = performance.now();
    await round(callee, count);
    best = Math.min(best, performance.now() - start);
  }
  return count / (best / 1000);
}

async function pipelined(callee, count) {
  const sums = await Promise.all(Array.from({ length: count }, (_, at) => callee.$add(at, 1)));
  sums.forEach(check);
}

async function sequential(callee, count) {
  for (let at = 0; at < count; at++) {
    check(await callee.$add(at, 1), at);
  }
}

function check(sum, at) {
  if (sum !== at + 1) {
    throw new Error(`${at} + 1 is not ${sum}`);
  }
}

async function large(callee) {
  const buffer = VSBuffer.wrap(Buffer.alloc(LARGE, 0x5a));
  let best = Infinity;
  for (let number = 0; number < FEW_ROUNDS; number++) {
    const start = performance.now();
    if ((await callee.$size(buffer)) !== LARGE) {
      throw new Error("the buffer came in another size");
    }
    best = Math.min(best, performance.now() - start);
  }
  return LARGE / (best / 1000);
}
