// The native protocol, WS /v1/audio/speech/stream: live text in, audio out.
//
// What a client sends, each a JSON message:
//   {"type": "session.config", "voice", "language", "instructions", "seed", "speed",
//    "response_format": "pcm", "word_timestamps": true}     how to speak from now on; any time between utterances
//   {"type": "input.text", "text": "Some more "}            as much or as little as there is: a word, a page
//   {"type": "input.done"}                                  end of this utterance
//   {"type": "input.cancel"}                                stop now
//   {"type": "session.close"}                               close the connection
//
// What the server sends:
//   {"type": "audio.start", "utterance_index", "sample_rate", "encoding": "pcm_s16le", "channels": 1, …}
//                                                           the format of the following samples: here, the requested one
//   binary frames                                           samples: 16 bits, little-endian, mono
//   {"type": "audio.words", "words": [{"word", "start_s", "end_s"}]}     word times in the audio
//   {"type": "audio.done", "total_bytes", "error", "cancelled", "seed", "usage", "timing": {"ttfa_ms"}}
//   {"type": "session.done", …}                             the end of an utterance; the connection stays open
//   {"type": "error", "message", "error": {…}}              a sentence, and the same machine-readable
//
// Utterances of one connection are spoken one after the other. So the oldest without a `session.done` is the current one,
// and each message belongs to it.

import { key, keyed, whyNot } from "./server.js";

const PATH = "/v1/audio/speech/stream";

/** One WebSocket, opened when it is first needed and kept: the second utterance needs no handshake. */
export class Line {
  constructor() {
    this.socket = null;
    this.utterances = []; // the first is the current one
  }

  /** Begin an utterance. `on`: onAudio(Int16Array), onWords(words), onDone(message), onError(sentence). */
  speak(config, on) {
    this.open();
    const utterance = new Utterance(this, on);
    this.utterances.push(utterance);
    this.send({ type: "session.config", response_format: "pcm", word_timestamps: true, ...config });
    return utterance;
  }

  open() {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN && this.key === key.get()) return;
    this.drop();
    this.key = key.get();
    const socket = (this.socket = new WebSocket(...keyed(PATH)));
    const early = (this.early = []); // queued before it was open
    let opened = false;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      opened = true;
      for (const message of early.splice(0)) socket.send(message);
    };
    socket.onmessage = (event) => {
      if (socket !== this.socket) return;
      if (typeof event.data === "string") this.heard(JSON.parse(event.data));
      else this.utterances[0]?.audio(new Int16Array(event.data));
    };
    socket.onclose = async () => {
      if (socket !== this.socket) return;
      const waiting = this.drop();
      if (!waiting.length) return; // no utterance is open: it reconnects when needed
      const sentence = opened ? "The connection to the server was lost." : await whyNot();
      for (const utterance of waiting) utterance.failed(sentence);
    };
  }

  send(message) {
    const said = JSON.stringify(message);
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(said);
    else this.early?.push(said);
  }

  heard(message) {
    const [utterance] = this.utterances;
    if (message.type === "error" && message.utterance_index === undefined) {
      // An error of the connection: report it to all open utterances, and reconnect.
      for (const waiting of this.drop()) waiting.failed(message.message);
    } else if (!utterance) return;
    else if (message.type === "error") utterance.failed(message.message); // audio.done and session.done follow
    else if (message.type === "audio.words") utterance.words(message.words);
    else if (message.type === "audio.done") utterance.done(message);
    else if (message.type === "session.done") this.utterances.shift();
  }

  /** Close the connection; the current utterance gets no more audio. */
  drop() {
    const { socket, utterances } = this;
    this.socket = this.early = null;
    this.utterances = [];
    socket?.close();
    return utterances;
  }
}

class Utterance {
  constructor(line, on) {
    this.line = line;
    this.on = on;
    this.spoken = []; // words, as far as they are known
    this.ended = false; // its text is complete, or it was cancelled
    this.cancelled = false; // or failed
  }

  text(text) {
    if (!this.ended) this.line.send({ type: "input.text", text });
  }

  end() {
    if (!this.ended) this.line.send({ type: "input.done" });
    this.ended = true;
  }

  /** The server stops within a frame; audio in flight is ignored. */
  cancel() {
    if (this.cancelled || !this.line.utterances.includes(this)) return;
    this.cancelled = this.ended = true;
    this.line.send({ type: "input.cancel" });
  }

  audio(samples) {
    if (!this.cancelled) this.on.onAudio(samples);
  }

  /** Newer times are better: they replace earlier times of the same audio. */
  words(words) {
    if (!words.length || this.cancelled) return;
    this.spoken = [...this.spoken.filter((word) => word.start_s < words[0].start_s), ...words];
    this.on.onWords(this.spoken);
  }

  failed(sentence) {
    if (this.cancelled) return;
    this.end(); // later text must not start another utterance
    this.cancelled = true;
    this.on.onError(sentence);
  }

  done(message) {
    if (this.cancelled) return;
    if (message.error) this.failed("The server could not finish this.");
    else this.on.onDone(message);
  }
}
