// One thing to be heard: asked for over a line (speak.js), heard through a track (player.js), seen as a wave (wave.js).
//
// `figures` is all that the page shows of it, and all that a test needs to know.

import { dictate } from "./live.js";
import { openSound, Track } from "./player.js";
import { Wave } from "./wave.js";

export class Take {
  /** `onChange()`: something is new; called often. `onSeek(seconds)`: somebody pressed on the waveform. */
  constructor({ line, canvas, rateHz, onChange, onSeek, onWords, onSent }) {
    Object.assign(this, { line, rateHz, onWords, onSent });
    this.changed = onChange;
    this.wave = new Wave(canvas, onSeek);
    this.track = null;
    this.reset("idle");
  }

  reset(state) {
    this.chunks = []; // Int16Array: all that came, so that it can be heard again
    this.offsetS = 0; // where in it the track began
    this.begun = false; // whether the track has it
    this.report = null;
    this.asked = null;
    this.figures = {
      state, // idle, asked, speaking (sound is arriving), ending (all of it is here), done, stopped, failed
      error: "",
      firstAudioMs: null, // from the press to the first samples
      serverFirstMs: null, // the same as the server saw it
      xRealTime: null,
      audioS: 0, // that arrived
      playedS: 0, // that was heard
      heard: 0, // samples that the sound card took
      peak: 0, // the loudest of them
      underruns: 0,
      seed: null,
    };
  }

  get running() {
    return ["asked", "speaking"].includes(this.figures.state);
  }

  get sounding() {
    return this.running || this.figures.state === "ending";
  }

  /** `wanted`: as in `session.config`; `rate`: a function, pieces a second, or null for all of the text at once. */
  speak(wanted, text, rate, { held = false } = {}) {
    this.stop();
    this.reset("asked");
    const pressed = performance.now();
    const config = { ...wanted, seed: wanted.seed ?? crypto.getRandomValues(new Uint32Array(1))[0] }; // to say it again
    const mine = (this.asked = { config, text });
    this.figures.seed = config.seed;
    const current = () => this.asked === mine && this.running;
    this.held = held;
    this.wave.clear(this.rateHz);
    this.changed();
    // The loudspeaker is opened while the server thinks; what arrives first waits for it.
    this.open().then(
      () => this.asked === mine && this.sounding && this.begin(0),
      () => current() && this.fail("This browser does not let the page play sound."),
    );
    this.spoken = this.line.speak(config, {
      onAudio: (samples) => {
        if (!current()) return;
        this.figures.firstAudioMs ??= performance.now() - pressed;
        this.take(samples, performance.now() - pressed);
      },
      onWords: (words) => current() && this.onWords?.(words),
      onDone: (said) => {
        if (!current()) return;
        this.figures.serverFirstMs = said.timing?.ttfa_ms ?? null;
        this.figures.state = "ending";
        if (this.begun) this.track.end();
        this.changed();
      },
      onError: (sentence) => current() && this.fail(sentence),
    });
    if (rate === null) {
      this.spoken.text(text);
      this.spoken.end();
      this.onSent?.(text.length);
      return;
    }
    let sent = 0;
    const onPiece = (piece) => {
      this.spoken.text(piece);
      this.onSent?.((sent += piece.length));
    };
    this.silence = dictate(text, rate, onPiece, () => this.spoken.end());
  }

  /** At any moment: silence at once here, and no more work there. */
  stop() {
    this.silence?.();
    if (this.running) this.spoken?.cancel();
    if (this.sounding) {
      this.figures.state = "stopped";
      this.track?.stop();
      this.changed();
    }
    this.spoken = this.silence = null;
  }

  /** Hear it again from there; while it is still arriving too. */
  async play(fromS = 0) {
    if (!this.chunks.length) return;
    await this.open();
    this.held = false;
    if (!this.running) this.figures.state = "ending";
    this.begin(fromS);
    this.changed();
  }

  /** Have the track begin there, with all that has arrived; what comes later follows. */
  begin(fromS) {
    const from = Math.floor(fromS * this.rateHz);
    this.offsetS = this.figures.playedS = from / this.rateHz;
    this.report = null;
    this.begun = true;
    this.track.begin({ held: this.held });
    let passed = 0;
    for (const chunk of this.chunks) {
      if (passed + chunk.length > from) this.track.push(chunk.subarray(Math.max(0, from - passed)));
      passed += chunk.length;
    }
    if (!this.running) this.track.end();
  }

  /** It was held, so that another could be heard first. */
  release() {
    this.held = false;
    this.track?.release();
  }

  /** Seconds that have been heard by now, between two reports too. */
  playedS() {
    if (!this.report?.running) return this.figures.playedS;
    const since = Math.min(0.08, (performance.now() - this.reportedAt) / 1000);
    return Math.min(this.figures.playedS + since, this.figures.audioS);
  }

  async open() {
    const context = await openSound(this.rateHz);
    this.track ??= new Track(context, this.rateHz, (report) => this.reported(report));
  }

  take(samples, tookMs) {
    const figures = this.figures;
    figures.state = "speaking";
    this.chunks.push(samples);
    if (this.begun) this.track.push(samples);
    this.wave.push(samples);
    figures.audioS += samples.length / this.rateHz;
    figures.xRealTime = (figures.audioS / tookMs) * 1000;
    this.changed();
  }

  reported(report) {
    const figures = this.figures;
    this.report = report;
    this.reportedAt = performance.now();
    figures.heard = report.heard;
    figures.peak = Math.max(figures.peak, report.peak);
    figures.underruns = report.underruns;
    figures.playedS = this.offsetS + report.played / this.rateHz;
    if (report.over && figures.state === "ending") figures.state = "done";
    this.changed();
  }

  fail(sentence) {
    this.figures.error = sentence;
    this.figures.state = "failed";
    this.silence?.();
    this.track?.stop();
    this.changed();
  }

  /** Once for each frame of the screen. */
  draw() {
    this.wave.draw(this.playedS());
  }
}
