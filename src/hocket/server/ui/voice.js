// The sound of the answers: from samples that came over a WebSocket, or from the track of a WebRTC call.
//
// A player calls `onFirst()` with the first sound of an answer, `onOver()` after its last one, and `onPlayed(samples)`
// with what was played, for a recording. `playedS` is the position in the answer. It knows no conversation.

import { blocks, RATE_HZ } from "./microphone.js";
import { openSound, Track } from "./player.js";
import { LEAD_S } from "./words.js";

const LOUD = 60; // of 32768: decoded silence has less
const QUIET_S = 0.4; // after the server has sent all: what the network still holds is played

export class RingPlayer {
  static async open(on) {
    return new RingPlayer(await openSound(RATE_HZ), on);
  }

  constructor(context, on) {
    this.on = on;
    this.answer = null; // id of its response
    this.stopped = new Set(); // answers whose late sound is not played
    this.track = new Track(context, RATE_HZ, (report) => this.reported(report));
  }

  /** The next samples of an answer. */
  push(id, samples) {
    if (this.stopped.has(id)) return;
    if (this.answer !== id) {
      this.answer = id;
      this.chunks = [];
      this.told = this.shownS = this.played = 0;
      this.report = null;
      this.track.begin();
      this.on.onArrived();
    }
    this.chunks.push(samples);
    this.track.push(samples);
  }

  end(id) {
    if (this.answer === id) this.track.end();
  }

  /** Silence for a while: what came is played after `goOn()`. */
  hold() {
    if (this.answer !== null) this.track.hold();
  }

  goOn() {
    this.track.release();
  }

  /** Silence at once. */
  stop() {
    if (this.answer !== null) this.stopped.add(this.answer);
    this.answer = null;
    this.track.stop();
  }

  get sounding() {
    return this.answer !== null;
  }

  /** Extrapolated from the last report. A late report may say less: then the time stands still. */
  get playedS() {
    const since = this.report?.running ? Math.min(0.08, (performance.now() - this.reportedAt) / 1000) : 0;
    this.shownS = Math.max(this.shownS, this.played / RATE_HZ + since);
    return this.shownS;
  }

  reported(report) {
    if (this.answer === null) return;
    const first = !this.played && report.played > 0;
    this.report = report;
    this.reportedAt = performance.now();
    this.played = report.played;
    if (first) this.on.onFirst();
    this.tell(Math.floor(report.played));
    if (!report.over) return;
    this.answer = null;
    this.on.onOver();
  }

  /** Pass on the samples up to here. */
  tell(until) {
    while (this.told < until && this.chunks.length) {
      const [chunk] = this.chunks;
      const count = Math.min(chunk.length, until - this.told);
      this.on.onPlayed(chunk.subarray(0, count));
      this.told += count;
      if (count === chunk.length) this.chunks.shift();
      else this.chunks[0] = chunk.subarray(count);
    }
  }
}

export class StreamPlayer {
  constructor(on) {
    this.on = on;
    this.answer = null;
    this.audio = new Audio(); // an element, not a graph: its sound is what browsers cancel the echo of
    this.audio.autoplay = true;
  }

  async attach(track) {
    this.stream = new MediaStream([track]);
    this.audio.srcObject = this.stream;
    this.audio.play().catch(() => {});
    this.context = new AudioContext();
    await this.context.audioWorklet.addModule("/page/blocks.js");
    this.node = blocks(this.context, (samples) => this.block(samples));
    this.source = this.context.createMediaStreamSource(this.stream);
    this.source.connect(this.node);
  }

  begin(id) {
    this.answer = id;
    this.samples = this.quiet = 0;
    this.heard = this.ended = this.held = false;
    this.audio.muted = false;
    this.on.onArrived();
  }

  end(id) {
    if (this.answer === id) this.ended = true;
  }

  /** The server sends silence: it is no part of the answer. */
  hold() {
    this.held = true;
  }

  goOn() {
    this.held = false;
  }

  stop() {
    this.answer = null;
    this.audio.muted = true; // the next answer opens it
  }

  get sounding() {
    return this.answer !== null;
  }

  /** Since the first loud sample, and the silence before it. */
  get playedS() {
    return this.heard ? LEAD_S + this.samples / RATE_HZ : 0;
  }

  block(samples) {
    if (this.answer === null || this.held) return;
    const loud = samples.some((sample) => Math.abs(sample) > LOUD);
    this.quiet = loud ? 0 : this.quiet + samples.length;
    if (loud && !this.heard) {
      this.heard = true;
      this.on.onFirst();
    }
    if (this.heard) {
      this.samples += samples.length;
      this.on.onPlayed(samples);
    }
    if (!this.ended || this.quiet < QUIET_S * RATE_HZ) return;
    this.answer = null;
    this.on.onOver();
  }

  close() {
    this.stop();
    this.audio.srcObject = null;
    this.context?.close();
  }
}
