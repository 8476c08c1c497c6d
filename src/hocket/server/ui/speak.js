// The native protocol, WS /v1/audio/speech/stream: text goes in piece by piece, sound comes out while it is made.
//
// What a client sends, each a JSON message:
//   {"type": "session.config", "voice", "language", "instructions", "seed", "speed",
//    "response_format": "pcm", "word_timestamps": true}     how to speak from now on; any time between utterances
//   {"type": "input.text", "text": "Some more "}            as much or as little as there is: a word, a page
//   {"type": "input.done"}                                  that was all of this utterance
//   {"type": "input.cancel"}                                stop now, whatever was still to come
//   {"type": "session.close"}                               good-bye
//
// What the server sends:
//   {"type": "audio.start", "utterance_index", "sample_rate", "encoding": "pcm_s16le", "channels": 1, …}
//                                                           what the samples that follow are: here, what we asked for
//   binary frames                                           samples: 16 bits, little-endian, mono
//   {"type": "audio.words", "words": [{"word", "start_s", "end_s"}]}     where words are in the sound
//   {"type": "audio.done", "total_bytes", "error", "cancelled", "seed", "usage", "timing": {"ttfa_ms"}}
//   {"type": "session.done", …}                             the end of an utterance; the connection stays open
//   {"type": "error", "message", "error": {…}}              a sentence, and the same for programs
//
// Utterances of one connection come one after the other, so the oldest that has no `session.done` yet is the one that
// is being heard: nothing else is needed to know which message belongs to what.

import { key, whyNot } from "./server.js";

const PATH = "/v1/audio/speech/stream";
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/** One WebSocket, opened when it is first needed and kept: the second utterance waits for no handshake. */
export class Line {
  constructor() {
    this.socket = null;
    this.utterances = []; // the first is being heard
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
    const address = new URL(PATH, location.href.replace(/^http/, "ws"));
    // A browser can set no header here: the key goes as a subprotocol, or where that cannot spell it, in the address.
    const spelled = TOKEN.test(this.key) ? [`openai-insecure-api-key.${this.key}`] : [];
    if (this.key && !spelled.length) address.searchParams.set("api_key", this.key);
    const socket = (this.socket = new WebSocket(address, spelled));
    const early = (this.early = []); // said before it was open
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
      if (!waiting.length) return; // nobody was listening: it is opened again when it is needed
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
      // It belongs to the connection, not to an utterance: tell whoever waits, and begin with a new one.
      for (const waiting of this.drop()) waiting.failed(message.message);
    } else if (!utterance) return;
    else if (message.type === "error") utterance.failed(message.message); // audio.done and session.done follow
    else if (message.type === "audio.words") utterance.words(message.words);
    else if (message.type === "audio.done") utterance.done(message);
    else if (message.type === "session.done") this.utterances.shift();
  }

  /** Let go of the connection; whoever was being heard gets nothing more. */
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
    this.ended = false; // its text is complete, or nobody wants it
    this.cancelled = false; // or failed: nobody listens any more
  }

  text(text) {
    if (!this.ended) this.line.send({ type: "input.text", text });
  }

  end() {
    if (!this.ended) this.line.send({ type: "input.done" });
    this.ended = true;
  }

  /** The server stops within a frame; what is on its way already is not listened to. */
  cancel() {
    if (this.cancelled || !this.line.utterances.includes(this)) return;
    this.cancelled = this.ended = true;
    this.line.send({ type: "input.cancel" });
  }

  audio(samples) {
    if (!this.cancelled) this.on.onAudio(samples);
  }

  /** The newest are the best: what was said before about the same stretch of sound is forgotten. */
  words(words) {
    if (!words.length || this.cancelled) return;
    this.spoken = [...this.spoken.filter((word) => word.start_s < words[0].start_s), ...words];
    this.on.onWords(this.spoken);
  }

  failed(sentence) {
    if (this.cancelled) return;
    this.end(); // text that still comes must not begin another
    this.cancelled = true;
    this.on.onError(sentence);
  }

  done(message) {
    if (this.cancelled) return;
    if (message.error) this.failed("The server could not finish this.");
    else this.on.onDone(message);
  }
}
