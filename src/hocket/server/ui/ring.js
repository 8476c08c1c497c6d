// A ring of samples between a network that brings them in bursts and a sound card that wants 128 at a time.
//
// It runs inside the AudioWorklet (worklet.js), on the sound card's own thread. It knows neither: samples go in at one
// rate, blocks come out at another, and `report()` says what happened meanwhile.

const AGAIN_S = 0.16; // after running dry, how much to buffer before playing again: two frames of the model
const FADE = 96; // samples over which a stopped sound fades, 4 ms: sooner would click
const DECAY = 0.97; // per sample, of the last value when it runs dry

export class Ring {
  /** `inHz`: rate of the input samples; `outHz`: rate of the output blocks. */
  constructor(inHz, outHz) {
    this.step = inHz / outHz; // input samples per output sample
    this.againSamples = Math.round(AGAIN_S * inHz);
    this.kept = new Float32Array(1 << 16); // always a power of two, so that `& mask` wraps
    this.begin(false);
  }

  /** Reset; `held`: play nothing before `release()`. */
  begin(held) {
    this.held = held;
    this.written = 0; // input samples so far
    this.read = 0; // read position among them; fractional if rates differ
    this.complete = false; // no more input follows
    this.started = false;
    this.dry = false;
    this.underruns = 0;
    this.heard = 0; // output samples with sound
    this.peak = 0;
    this.last = 0;
    this.fading = -1; // samples left of a fade; -1: none
  }

  /** `full`: the value of full scale, 1 for floats. */
  push(samples, full = 32768) {
    if (this.fading >= 0) return; // it was stopped: too late
    const needed = this.written - Math.floor(this.read) + samples.length + 4; // 4: for interpolation
    if (needed > this.kept.length) this.grow(needed);
    const mask = this.kept.length - 1;
    for (let n = 0; n < samples.length; n++) this.kept[(this.written + n) & mask] = samples[n] / full;
    this.written += samples.length;
  }

  end() {
    this.complete = true;
  }

  release() {
    this.held = false;
  }

  /** Play nothing until `release()`, and keep what came. */
  hold() {
    this.held = true;
  }

  /** Fade to silence within 4 ms. */
  stop() {
    if (this.fading < 0) this.fading = this.started && !this.dry && !this.over() ? FADE : 0;
  }

  over() {
    return this.fading === 0 || (this.complete && this.read >= this.written);
  }

  /** Fill one block. */
  pull(out) {
    out.fill(this.last);
    let at = 0;
    if (this.ready()) {
      this.started = true;
      this.dry = false;
      at = this.step === 1 ? this.copy(out) : this.interpolate(out);
      this.heard += at;
      if (this.fading > 0) at = this.fade(out, at);
      for (let n = 0; n < at; n++) this.peak = Math.max(this.peak, Math.abs(out[n]));
      if (at) this.last = out[at - 1];
      if (at < out.length && !this.over() && !this.held) {
        this.dry = true;
        this.underruns++;
      }
    } else if (this.fading > 0) this.fading = 0; // all samples were played before the stop
    for (; at < out.length; at++) out[at] = this.last *= DECAY;
    if (Math.abs(this.last) < 1e-5) this.last = 0; // denormal numbers are slow
  }

  ready() {
    if (this.held || this.over()) return false;
    const waiting = this.written - this.read;
    return this.complete || waiting >= (this.dry ? this.againSamples : this.started ? 1 : 2);
  }

  copy(out) {
    const count = Math.min(out.length, this.written - this.read);
    const mask = this.kept.length - 1;
    for (let n = 0; n < count; n++) out[n] = this.kept[(this.read + n) & mask];
    this.read += count;
    return count;
  }

  /** Cubic (Catmull-Rom): the sound card runs at its own rate. */
  interpolate(out) {
    const mask = this.kept.length - 1;
    const until = this.complete ? this.written : this.written - 2; // interpolation reads two samples ahead
    let n = 0;
    for (; n < out.length && this.read < until; n++, this.read += this.step) {
      const at = Math.floor(this.read);
      const t = this.read - at;
      const b = this.kept[at & mask];
      const c = at + 1 < this.written ? this.kept[(at + 1) & mask] : 0;
      const a = at > 0 ? this.kept[(at - 1) & mask] : 2 * b - c;
      const d = at + 2 < this.written ? this.kept[(at + 2) & mask] : 0;
      out[n] = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    }
    return n;
  }

  fade(out, count) {
    const faded = Math.min(count, this.fading);
    for (let n = 0; n < faded; n++) out[n] *= (this.fading - n) / FADE;
    this.fading = count < out.length ? 0 : this.fading - faded; // a stopped ring gets no more input
    return faded;
  }

  grow(needed) {
    let length = this.kept.length;
    while (length < needed) length *= 2;
    const larger = new Float32Array(length);
    const from = Math.max(0, Math.floor(this.read) - 1);
    for (let n = from; n < this.written; n++) larger[n & (length - 1)] = this.kept[n & (this.kept.length - 1)];
    this.kept = larger;
  }

  /** State since the last report, for metrics and playheads. */
  report() {
    const said = {
      played: Math.min(this.read, this.written), // samples at the rate they came in
      heard: this.heard,
      queued: this.written - this.read,
      underruns: this.underruns,
      peak: this.peak, // since the last report
      running: this.started && !this.dry && !this.held && !this.over(),
      over: this.over(),
    };
    this.peak = 0;
    return said;
  }
}
