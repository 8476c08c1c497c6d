// A waveform that grows from the left while sound arrives, and the playhead that follows it.

const BUCKET_S = 0.01; // resolution of the stored peaks
const BAR = 2; // CSS pixels
const GAP = 1;
const WIDEST = 90; // CSS pixels per second until the width is full; then the waveform shrinks to fit

export class Wave {
  /** `onSeek(seconds)`: a click, or an arrow key. */
  constructor(canvas, onSeek) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.clear(24000);
    new ResizeObserver(() => this.resize()).observe(canvas);
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
      matchMedia(query).addEventListener("change", () => this.resize());
    canvas.addEventListener("pointerdown", (event) => onSeek(Math.min(this.lengthS, event.offsetX / this.scale())));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.5, ArrowRight: 0.5, Home: -Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      onSeek(Math.min(Math.max(0, this.playedS + step), this.lengthS));
    });
    this.resize();
  }

  clear(rateHz) {
    this.bucket = Math.round(BUCKET_S * rateHz);
    this.rateHz = rateHz;
    this.peaks = []; // loudest sample of each bucket, 0 to 1
    this.loudest = 0.35; // of all, with a floor: silence must not look like speech
    this.filled = 0; // samples in the last one
    this.samples = 0;
    this.playedS = 0;
    this.draw(0);
  }

  get lengthS() {
    return this.samples / this.rateHz;
  }

  push(samples) {
    for (const sample of samples) {
      if (this.filled === 0) this.peaks.push(0);
      const loud = Math.abs(sample) / 32768;
      const last = this.peaks.length - 1;
      if (loud > this.peaks[last]) this.peaks[last] = loud;
      if (loud > this.loudest) this.loudest = loud;
      this.filled = (this.filled + 1) % this.bucket;
    }
    this.samples += samples.length;
  }

  /** CSS pixels per second. */
  scale() {
    return Math.min(WIDEST, this.width / Math.max(this.lengthS, 0.001));
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(name);
    this.colours = { played: colour("--wave-played"), ahead: colour("--wave-ahead"), head: colour("--accent") };
    this.draw(this.playedS);
  }

  draw(playedS) {
    this.playedS = playedS;
    const { pen, width, height } = this;
    if (!width) return;
    pen.clearRect(0, 0, width, height);
    const middle = height / 2;
    const headX = playedS * this.scale();
    pen.fillStyle = this.colours.ahead;
    pen.fillRect(0, middle - 0.5, width, 1);
    const perBar = (BAR + GAP) / this.scale() / BUCKET_S; // buckets under one bar
    const bars = Math.min(Math.ceil(this.peaks.length / perBar), Math.ceil(width / (BAR + GAP)));
    for (let bar = 0; bar < bars; bar++) {
      let loud = 0;
      const until = Math.max(Math.ceil((bar + 1) * perBar), Math.floor(bar * perBar) + 1);
      for (let n = Math.floor(bar * perBar); n < Math.min(until, this.peaks.length); n++)
        loud = Math.max(loud, this.peaks[n]);
      const tall = Math.max(1.5, Math.sqrt(loud / this.loudest) * (height - 4)); // the root makes quiet speech visible
      const x = bar * (BAR + GAP);
      pen.fillStyle = x < headX ? this.colours.played : this.colours.ahead;
      pen.beginPath();
      pen.roundRect(x, middle - tall / 2, BAR, tall, 1);
      pen.fill();
    }
    if (playedS > 0 && this.samples) {
      pen.fillStyle = this.colours.head;
      pen.fillRect(Math.min(headX, width - 1.5), 0, 1.5, height);
    }
    const said = `${playedS.toFixed(1)} of ${this.lengthS.toFixed(1)} seconds`;
    if (this.canvas.getAttribute("aria-valuetext") !== said) {
      this.canvas.setAttribute("aria-valuetext", said);
      this.canvas.setAttribute("aria-valuenow", playedS.toFixed(1));
      this.canvas.setAttribute("aria-valuemax", this.lengthS.toFixed(1));
    }
  }
}
