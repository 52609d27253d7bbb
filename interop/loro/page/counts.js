// What went over a transport, by its messages: WebSocket and channel messages, POST bodies, events, answers.

class Passed {
  messages = 0;
  bytes = 0;
  largest = 0;

  add(size) {
    this.messages += 1;
    this.bytes += size;
    this.largest = Math.max(this.largest, size);
  }
}

/** Both directions; `opened` counts the connections. */
export class Counts {
  opened = 0;
  sent = new Passed();
  received = new Passed();
}
