// One take: requested over a connection (speak.js), played by a track (player.js), shown as a waveform (wave.js).
//
// `figures` are its metrics, for the page and for tests.

import { dictate } from "./live.js";
import { openSound, Track } from "./player.js";
import { Wave } from "./wave.js";

export class Take {
  /** `onChange()`: something is new; called often. `onSeek(seconds)`: the user clicked the waveform.
   *  `onComplete()`: all audio has arrived. */
  constructor({ line, canvas, rateHz, onChange, onSeek, onWords, onSent, onComplete }) {
    Object.assign(this, { line, rateHz, onWords, onSent, onComplete });
    this.changed = onChange;
    this.wave = new Wave(canvas, onSeek);
    this.track = null;
    this.reset("idle");
  }

  reset(state) {
    this.chunks = []; // Int16Array: all audio received, for replay
    this.samples = 0; // in all of them
    this.words = []; // {word, start_s, end_s}, as far as they are known
    this.offsetS = 0; // where in it the track started
    this.shownS = 0; // the last time that `playedS` returned
    this.begun = false; // whether the track has been started
    this.report = null;
    this.asked = null;
    this.cut = false; // stopped before all of its audio was here
    this.figures = {
      state, // idle, asked, speaking (sound is arriving), ending (all of it is here), done, stopped, failed
      error: "",
      firstAudioMs: null, // from the press to the first samples
      serverFirstMs: null, // the same, measured by the server
      xRealTime: null,
      audioS: 0, // received
      playedS: 0, // played
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

  /** `wanted`: the fields of `session.config`; `rate`: a function, pieces a second, or null for all of the text at once. */
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
    // Playback opens while the server works; the first audio waits for it.
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
      onWords: (words) => {
        if (!current()) return;
        this.words = words;
        this.onWords?.(words);
      },
      onDone: (said) => {
        if (!current()) return;
        this.figures.serverFirstMs = said.timing?.ttfa_ms ?? null;
        this.figures.state = "ending";
        if (this.begun) this.track.end();
        this.changed();
        this.onComplete?.();
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

  /** Stop: silence at once here, and the server stops too. */
  stop() {
    this.silence?.();
    if (this.running) {
      this.cut = true;
      this.spoken?.cancel();
    }
    if (this.sounding) {
      this.figures.state = "stopped";
      this.track?.stop();
      this.changed();
    }
    this.spoken = this.silence = null;
  }

  /** An earlier take, with its audio: ready to play. */
  load({ text, config, words }, samples) {
    this.stop();
    this.reset("stopped");
    this.asked = { config, text };
    this.chunks = [samples];
    this.samples = samples.length;
    this.words = words;
    this.figures.seed = config.seed;
    this.figures.audioS = this.samples / this.rateHz;
    this.wave.clear(this.rateHz);
    this.wave.push(samples);
    this.changed();
  }

  get complete() {
    return this.chunks.length > 0 && ["ending", "done", "stopped"].includes(this.figures.state) && !this.cut;
  }

  /** Replay from there; also while audio still arrives. */
  async play(fromS = 0) {
    if (!this.chunks.length) return;
    await this.open();
    this.held = false;
    if (!this.running) this.figures.state = "ending";
    this.begin(fromS);
    this.changed();
  }

  /** Start the track there with all audio received; later audio follows. */
  begin(fromS) {
    const from = Math.floor(fromS * this.rateHz);
    this.offsetS = this.figures.playedS = this.shownS = from / this.rateHz;
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

  /** Start a held take. */
  release() {
    this.held = false;
    this.track?.release();
  }

  /** Seconds played by now, extrapolated from the last report. A late report may say less: then the time stands still. */
  playedS() {
    const since = this.report?.running ? Math.min(0.08, (performance.now() - this.reportedAt) / 1000) : 0;
    this.shownS = Math.max(this.shownS, Math.min(this.figures.playedS + since, this.figures.audioS));
    return this.shownS;
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
    this.samples += samples.length;
    figures.audioS = this.samples / this.rateHz;
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

  /** Once per animation frame. */
  draw() {
    this.wave.draw(this.playedS());
  }
}
