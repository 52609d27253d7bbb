// What the peer can be asked: a method for each kind of argument and reply.

import { CancellationError, SerializableObjectWithBuffers, URI } from "./original.mjs";
import { bytes, digest, tell } from "./values.mjs";

export class Actor {
  #other;
  #marks = { count: 0, inOrder: true };
  #cancelled = 0;

  // `other` is the proxy of the actor on the other side.
  constructor(other) {
    this.#other = other;
  }

  // Whatever it is: JSON, nothing, a buffer, an object with buffers.
  $echo(value) {
    return value;
  }

  // What the arguments are, in words, so that undefined and null differ.
  $kinds(...args) {
    return tell(args);
  }

  $add(left, right) {
    return left + right;
  }

  $digest(buffer) {
    return digest(buffer);
  }

  $buffer(size, seed) {
    return bytes(size, seed);
  }

  $withBuffers(size, seed) {
    const [one, two] = [bytes(size, seed), bytes(size, seed + 1)];
    return new SerializableObjectWithBuffers({ one, list: [two, one], nothing: undefined });
  }

  // An error with all that an error can have.
  $fail() {
    const cause = Object.assign(new RangeError("the cause"), { code: 7 });
    throw Object.assign(new TypeError("the error", { cause }), { code: "E_INTEROP" });
  }

  // What is thrown need not be an error, nor anything at all.
  async $throw(value) {
    throw value;
  }

  $isCancelled(token) {
    return token.isCancellationRequested;
  }

  // Ends when it is cancelled: with an answer,
  async $untilCancelled(token) {
    await new Promise((resolve) => token.onCancellationRequested(resolve));
    this.#cancelled++;
    return "cancelled";
  }

  // or as a cancelled method usually does.
  async $failWhenCancelled(token) {
    await this.$untilCancelled(token);
    throw new CancellationError();
  }

  // How many calls were cancelled, theirs included whose caller has gone.
  $cancelled() {
    return this.#cancelled;
  }

  // Calls back inside the call, as deep as it is told.
  async $down(depth) {
    return depth === 0 ? 0 : 1 + (await this.#other.$down(depth - 1));
  }

  // Calls any method of the other side inside the call.
  async $callBack(method, ...args) {
    return await this.#other[method](...args);
  }

  // What a URI is on this side, and the same URI once more on its way back.
  $uri(uri) {
    return { seen: URI.revive(uri).toString(true), uri: URI.revive(uri) };
  }

  // Nothing else happens here meanwhile, not even acknowledgements.
  $block(milliseconds) {
    const end = performance.now() + milliseconds;
    while (performance.now() < end);
    return milliseconds;
  }

  // Takes numbers that come once each and in order, or remembers that they did not.
  $mark(number) {
    this.#marks.inOrder &&= number === this.#marks.count;
    this.#marks.count++;
    return number;
  }

  $marks() {
    return this.#marks;
  }
}
