// What the original's stream protocols read from and write to: the `ISocket` of VS Code, over a TCP
// stream or over a WebSocket whose message boundaries mean nothing.

import { Emitter, SocketCloseEventType, VSBuffer } from "./original.mjs";

// The original's server cuts what it writes to a WebSocket at this size.
const LARGEST_WEBSOCKET_MESSAGE = 262144;

class Socket {
  #data = new Emitter();
  #close = new Emitter();
  #end = new Emitter();
  onData = this.#data.event;
  onClose = this.#close.event;
  onEnd = this.#end.event;

  traceSocketEvent() {}

  received(buffer) {
    this.#data.fire(VSBuffer.wrap(buffer));
  }

  ended() {
    this.#end.fire();
  }

  closed(type, error) {
    this.#close.fire({ type, hadError: error !== undefined, error });
  }
}

export class TcpSocket extends Socket {
  constructor(stream) {
    super();
    this.stream = stream;
    let error;
    stream.setNoDelay(true);
    stream.on("data", (data) => this.received(data));
    stream.on("end", () => this.ended());
    stream.on("error", (reason) => (error = reason));
    stream.on("close", () => this.closed(SocketCloseEventType.NodeSocketCloseEvent, error));
  }

  write(buffer) {
    // After a cut the protocol may still write; what it wrote is sent again when it reconnects.
    if (!this.stream.destroyed) {
      this.stream.write(buffer.buffer);
    }
  }

  end() {
    this.stream.end();
  }

  async drain() {
    if (this.stream.writableNeedDrain) {
      await new Promise((resolve) => this.stream.once("drain", resolve).once("close", resolve));
    }
  }

  // A cut: nobody is told.
  dispose() {
    this.stream.destroy();
  }
}

export class WebSocketSocket extends Socket {
  constructor(websocket) {
    super();
    this.websocket = websocket;
    let error;
    websocket.on("message", (data) => this.received(data));
    websocket.on("error", (reason) => (error = reason));
    websocket.on("close", () => this.closed(SocketCloseEventType.WebSocketCloseEvent, error));
  }

  write({ buffer }) {
    for (let at = 0; at < buffer.length; at += LARGEST_WEBSOCKET_MESSAGE) {
      this.websocket.send(buffer.subarray(at, at + LARGEST_WEBSOCKET_MESSAGE), { binary: true });
    }
  }

  end() {
    this.websocket.close(1000);
  }

  async drain() {}

  dispose() {
    this.websocket.terminate();
  }
}
