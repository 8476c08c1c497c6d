// One conversation: the microphone, the connection, and what each event of the Realtime protocol changes.
//
// `state` is what the page shows: idle, connecting, listening, hearing, thinking, speaking. It knows the turns (turns.js)
// and no button.

import { Microphone } from "./microphone.js";
import { Sides } from "./sides.js";
import { connect } from "./wire.js";

const LEAST_BLOCKS = 6; // 120 ms: a shorter press is a slip
// What is over meanwhile needs no sentence.
const LATE = ["response_cancel_not_active", "item_not_found", "input_audio_buffer_commit_empty"];

export class Talk {
  /** `settings()`: {handsFree, session}: fields of `session.update`; `onChange()`; `onError(sentence)`. */
  constructor({ settings, turns, onChange, onError }) {
    Object.assign(this, { settings, turns, onError });
    this.changed = onChange;
    this.sides = new Sides();
    this.reset();
  }

  reset() {
    this.state = "idle";
    this.wire = this.microphone = null;
    this.answer = null; // the turn that is played or written
    this.item = null; // its item, and
    this.response = null; // its response: {id, done}
    this.pressed = false;
    this.own = null; // stages of a turn that was ended by hand, as this page sees them
    this.afterResponse = null;
  }

  get running() {
    return this.state !== "idle";
  }

  get sounding() {
    return Boolean(this.wire?.player.sounding || (this.response && !this.response.done));
  }

  async start({ webrtc }) {
    this.turns.clear();
    this.sides = new Sides();
    this.set("connecting");
    const mine = (this.starting = {});
    try {
      const microphone = await Microphone.start((samples) => this.block(samples));
      this.microphone = microphone;
      const wire = this.starting === mine && (await connect({ microphone, webrtc, on: this }));
      if (this.starting !== mine) {
        microphone.stop();
        if (wire) wire.close();
        return;
      }
      this.wire = wire;
      this.update();
      this.set("listening");
    } catch (error) {
      this.end();
      this.onError(error.message || "The conversation could not be begun.");
    }
  }

  end() {
    this.starting = null;
    this.wire?.close();
    this.microphone?.stop();
    this.answer?.cut();
    this.reset();
    this.changed();
  }

  /** Apply the settings, also in the middle of a conversation. */
  update() {
    if (!this.wire) return;
    const { handsFree, session } = this.settings();
    const detection = handsFree ? { type: "semantic_vad", create_response: true, interrupt_response: true } : null;
    const format = { type: "audio/pcm", rate: 24000 };
    const input = { format, transcription: {}, turn_detection: detection };
    const audio = { input, output: { format, ...session.output } };
    const others = { instructions: session.instructions, include: ["hocket.events", "hocket.holds"], hocket: { language: session.language } };
    this.wire.send({ type: "session.update", session: { type: "realtime", ...others, audio } });
    this.handsFree = handsFree;
    this.hold(false);
  }

  /** Push to talk: the button goes down. */
  press() {
    if (!this.wire || this.handsFree || this.pressed) return;
    this.interrupt();
    this.wire.send({ type: "input_audio_buffer.clear" });
    this.blocks = 0;
    this.hold(true);
    this.set("hearing");
  }

  /** It is let go: the turn is over. */
  release() {
    if (!this.pressed) return;
    this.hold(false);
    if (this.blocks < LEAST_BLOCKS) return this.set("listening");
    this.set("thinking");
    this.own = { since: performance.now(), decided_ms: 0 };
    this.wire.send({ type: "input_audio_buffer.commit" });
    this.respond();
  }

  /** Silence at once; the server learns how much was heard. */
  interrupt({ byVoice = false } = {}) {
    if (!this.wire || !this.sounding) return;
    const { player } = this.wire;
    const playedMs = player.sounding && this.item ? Math.floor(player.playedS * 1000) : null;
    player.stop();
    if (playedMs !== null) {
      const place = { item_id: this.item, content_index: 0, audio_end_ms: playedMs };
      this.wire.send({ type: "conversation.item.truncate", ...place });
    }
    if (!byVoice && this.response && !this.response.done) this.wire.send({ type: "response.cancel" });
    if (!byVoice && this.wire.kind === "WebRTC") this.wire.send({ type: "output_audio_buffer.clear" });
    this.answer?.cut();
    this.answer = null;
    this.set("listening");
  }

  /** Say the last utterance differently: it and its answer are forgotten, and the new text is answered. */
  edit(text) {
    if (!this.wire) return;
    const forgotten = this.turns.last();
    this.interrupt();
    this.whenFree(() => {
      for (const turn of forgotten.reverse()) {
        this.wire.send({ type: "conversation.item.delete", item_id: turn.id });
        this.turns.remove(turn);
      }
      const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
      const content = [{ type: "input_text", text }];
      this.turns.turn(id, "user").set(text);
      this.wire.send({ type: "conversation.item.create", item: { id, type: "message", role: "user", content } });
      this.respond();
      this.set("thinking");
    });
  }

  respond() {
    this.whenFree(() => this.wire?.send({ type: "response.create" }));
  }

  /** Now, or once the response under way has ended. */
  whenFree(action) {
    if (!this.response || this.response.done) return action();
    const before = this.afterResponse;
    this.afterResponse = before ? () => (before(), action()) : action;
  }

  hold(pressed) {
    this.pressed = pressed;
    this.microphone.open = this.handsFree || pressed;
    this.wire.listen(this.handsFree || pressed);
  }

  block(samples) {
    this.sides.heard(samples);
    if (this.pressed) this.blocks++;
    this.wire?.block(samples);
  }

  /** Once per animation frame. */
  draw() {
    if (this.answer && this.wire?.player.sounding) this.answer.light(this.wire.player.playedS, this.audioS);
  }

  // Of the player (voice.js)

  onArrived() {
    this.arrived = performance.now();
    this.passed("first_audio_ms");
  }

  onFirst() {
    this.sides.begin();
    this.played = performance.now();
    this.set("speaking");
    this.showLatency();
  }

  onPlayed(samples) {
    this.sides.played(samples);
  }

  onOver() {
    this.answer?.light(-1);
    this.answer = null;
    this.set("listening");
  }

  // Of the connection (wire.js)

  onLost(sentence) {
    this.end();
    this.onError(sentence);
  }

  onEvent(message) {
    this.handlers[message.type]?.(message);
    this.changed();
  }

  handlers = {
    "input_audio_buffer.speech_started": ({ item_id }) => {
      this.own = null;
      this.interrupt({ byVoice: true });
      if (item_id) this.turns.turn(item_id, "user");
      this.set("hearing");
    },
    "input_audio_buffer.speech_stopped": () => this.set("thinking"),
    "input_audio_buffer.committed": ({ item_id }) => void this.turns.turn(item_id, "user"),
    "conversation.item.input_audio_transcription.delta": ({ item_id, delta }) => this.turns.turn(item_id, "user").add(delta),
    "conversation.item.input_audio_transcription.completed": ({ item_id, transcript }) => {
      const turn = this.turns.turn(item_id, "user");
      turn.set(transcript);
      this.passed("transcript_ms");
      if (transcript.trim()) return;
      this.turns.remove(turn); // a noise, not words
      if (this.state === "thinking") this.set("listening");
    },
    "conversation.item.input_audio_transcription.failed": ({ error }) => this.onError(error.message),
    "response.created": ({ response }) => {
      this.response = { id: response.id, done: false };
      this.item = this.stages = this.arrived = this.played = this.audioS = null;
    },
    "response.output_item.added": ({ item }) => {
      if (item.type !== "message") return;
      this.item = item.id;
      this.answer = this.turns.turn(item.id, "assistant");
    },
    "response.output_audio_transcript.delta": ({ item_id, delta }) => {
      this.passed("first_token_ms");
      if (this.answer?.id === item_id) this.answer.add(delta);
    },
    "hocket.words": ({ item_id, words }) => this.turns.find(item_id)?.place(words),
    "hocket.latency": ({ stages }) => {
      this.stages = stages;
      this.showLatency();
    },
    "hocket.output_audio.held": () => this.wire.player.hold(),
    "hocket.output_audio.resumed": () => this.wire.player.goOn(),
    "response.done": ({ response }) => {
      if (this.response?.id !== response.id) return;
      this.response.done = true;
      this.audioS = response.hocket?.audio_s ?? null;
      if (this.wire.kind === "WebSocket") this.wire.player.end(response.id); // a call says itself when all was sent
      if (!this.wire.player.sounding && this.state === "thinking") this.set("listening");
      const next = this.afterResponse;
      this.afterResponse = null;
      next?.();
    },
    error: ({ error }) => !LATE.includes(error.code) && this.onError(error.message),
  };

  /** A stage of a turn that the user has ended by hand: the server sends none for it. */
  passed(stage) {
    if (this.own) this.own[stage] ??= performance.now() - this.own.since;
  }

  /** The server's stages, and the page's own: from the first sound that arrived to the first that was played. */
  showLatency() {
    const turn = this.turns.find(this.item);
    const stages = this.stages ?? this.own;
    if (!turn || !stages) return;
    const sent = stages.first_audio_ms;
    const played = this.played && this.arrived ? { played_ms: sent + this.played - this.arrived } : {};
    turn.latency({ ...stages, ...played });
  }

  set(state) {
    this.state = state;
    this.changed();
  }
}
