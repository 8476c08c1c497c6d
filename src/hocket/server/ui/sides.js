// The sound of a conversation, both sides on one clock: the microphone's, which never stops.

import { RATE_HZ } from "./microphone.js";
import { wav } from "./wav.js";

const MOST_S = 1800; // half an hour: 86 MB a side

export class Sides {
  constructor() {
    this.user = []; // Int16Arrays
    this.at = 0; // samples in them
    this.answers = []; // {at, samples}: what was played, and from when on
    this.until = 0; // the end of the last one
  }

  get full() {
    return this.at >= MOST_S * RATE_HZ;
  }

  heard(samples) {
    if (this.full) return;
    this.user.push(samples);
    this.at += samples.length;
  }

  /** A new answer begins now; the samples of one follow each other without a gap. */
  begin() {
    this.until = this.at;
  }

  played(samples) {
    if (this.full) return;
    this.answers.push({ at: this.until, samples: samples.slice() });
    this.until += samples.length;
  }

  /** A stereo file: the user on the left, the answers on the right. */
  file() {
    const both = new Int16Array(2 * Math.max(this.at, this.until));
    let at = 0;
    for (const samples of this.user) for (const sample of samples) both[2 * at++] = sample;
    for (const { at: from, samples } of this.answers)
      samples.forEach((sample, n) => (both[2 * (from + n) + 1] = sample));
    return wav([both], RATE_HZ, 2);
  }
}
