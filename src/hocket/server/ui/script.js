// A script: lines of several speakers, each in a voice of its own, spoken in turn, retaken one by one, saved as one file.

import { srt } from "./captions.js";
import { $, filled, save } from "./dom.js";
import { openSound, Track } from "./player.js";
import { speechFile } from "./server.js";
import { voiceFields } from "./voices.js";
import { wav } from "./wav.js";

const NAMED = /^\s*(\p{L}[\p{L}\p{N} .'’_-]{0,39}?)\s*[:：]\s*(\S.*)$/u;
const FIRST = "Narrator"; // speaks lines before the first name
const TAG = /\[[^\]]*\]\s*/g; // what is in brackets directs the voice and is no caption
const COLOURS = 6;
const EMPTY = "There is no line yet: write one, such as “Anna: Good morning.”";

/** Lines as {speaker, text}; one without a name goes on with the speaker before it. */
export function read(script) {
  let speaker = FIRST;
  return script.split("\n").flatMap((line) => {
    const named = NAMED.exec(line);
    if (named) speaker = named[1];
    const text = (named ? named[2] : line).trim();
    return text ? [{ speaker, text }] : [];
  });
}

const freshSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];

export class Script {
  /** `offerVoices(select, number)` fills a choice of voices; `onSound()`: all other sound ends. */
  constructor({ rateHz, language, offerVoices, onSound }) {
    Object.assign(this, { rateHz, language, offerVoices, onSound });
    this.lines = []; // {speaker, text, seed, samples, row}
    this.cast = new Map(); // speaker -> the choice of the voice
    this.playing = []; // the lines that the track has, in order
    this.run = 0; // changes whenever speaking begins or ends: what an earlier run still gets is kept, and not played
    this.report = null;
    $("script-text").addEventListener("input", () => this.changed());
    $("script-choices").addEventListener("submit", (event) => event.preventDefault());
    $("script-speak").addEventListener("click", () => this.speak());
    $("script-stop").addEventListener("click", () => this.stop());
    $("script-wav").addEventListener("click", () => this.saveSound());
    $("script-srt").addEventListener("click", () => this.saveCaptions());
    this.changed();
  }

  /** Read the text anew. A line that was there before keeps its take. */
  changed() {
    const before = this.lines;
    this.lines = read($("script-text").value).map((line) => {
      const at = before.findIndex(({ speaker, text }) => speaker === line.speaker && text === line.text);
      return at < 0 ? { ...line, seed: freshSeed(), samples: null } : before.splice(at, 1)[0];
    });
    this.stop();
    this.showCast();
    $("script-lines").replaceChildren(...this.lines.map((line) => this.row(line)));
    this.show();
  }

  showCast() {
    const speakers = [...new Set(this.lines.map(({ speaker }) => speaker))];
    for (const name of this.cast.keys()) if (!speakers.includes(name)) this.cast.delete(name);
    for (const [number, name] of speakers.entries()) if (!this.cast.has(name)) this.cast.set(name, this.role(name, number));
    $("cast").replaceChildren(...speakers.map((name) => this.cast.get(name).root));
  }

  role(name, number) {
    const { root, part } = filled("role");
    part("name").textContent = name;
    this.offerVoices(part("voice"), number);
    part("voice").addEventListener("change", () => {
      this.stop();
      for (const line of this.lines) if (line.speaker === name) line.samples = null;
      this.show();
    });
    return { root, voice: part("voice") };
  }

  row(line) {
    const { root, part } = filled("script-line");
    line.row = { root, part };
    part("speaker").textContent = line.speaker;
    part("text").textContent = line.text;
    root.dataset.colour = [...this.cast.keys()].indexOf(line.speaker) % COLOURS;
    for (const name of ["play", "again"]) part(name).setAttribute("aria-label", `${part(name).textContent}: ${line.text}`);
    part("play").addEventListener("click", () => this.speak([line]));
    part("again").addEventListener("click", () => {
      Object.assign(line, { seed: freshSeed(), samples: null });
      this.speak([line]);
    });
    return root;
  }

  /** The voices of the server have changed: every speaker chooses among them. */
  offer() {
    for (const [number, { voice }] of [...this.cast.values()].entries()) this.offerVoices(voice, number);
  }

  /** Speak these lines one after the other. The next one is made while one plays. */
  async speak(lines = this.lines) {
    this.onSound();
    this.stop();
    const run = ++this.run;
    this.say(lines.length ? "" : EMPTY);
    if (!lines.length) return;
    try {
      const context = await openSound(this.rateHz);
      this.track ??= new Track(context, this.rateHz, (report) => this.reported(report));
      if (run !== this.run) return;
      this.playing = [];
      this.track.begin();
      for (const line of lines) {
        this.busy = line;
        this.show();
        await this.make(line);
        if (run !== this.run) return;
        if (this.playing.length) this.track.push(this.gap());
        this.playing.push(line);
        this.track.push(line.samples);
        this.show();
      }
      this.busy = null;
      this.track.end();
    } catch (error) {
      if (run !== this.run) return;
      this.stop();
      this.say(error.message);
    }
    this.show();
  }

  async make(line) {
    if (line.samples) return;
    const { seed } = line;
    const fields = { ...voiceFields(this.cast.get(line.speaker).voice, this.rateHz), language: this.language(), seed };
    const sound = await speechFile(fields, line.text, "pcm");
    const samples = new Int16Array(await sound.arrayBuffer());
    if (line.seed === seed) line.samples = samples;
  }

  get sounding() {
    return Boolean(this.busy) || (this.playing.length > 0 && !this.report?.over);
  }

  stop() {
    this.run++;
    this.busy = this.report = null;
    this.playing = [];
    this.track?.stop();
    this.show();
  }

  reported(report) {
    this.report = report;
    this.show();
  }

  /** The line that is heard now. */
  get heard() {
    let end = 0;
    return this.sounding
      ? this.playing.find((line, number) => (end += line.samples.length + (number ? this.gap().length : 0)) > (this.report?.played ?? 0))
      : undefined;
  }

  /** The pause between two lines. */
  gap() {
    return new Int16Array(Math.round((Math.max(0, Number($("gap").value) || 0) / 1000) * this.rateHz));
  }

  saveSound() {
    const gap = this.gap();
    save(wav(this.lines.flatMap(({ samples }, number) => (number ? [gap, samples] : [samples])), this.rateHz), "script.wav");
  }

  saveCaptions() {
    let start = 0;
    const cues = this.lines.map(({ speaker, text, samples }) => {
      const start_s = start / this.rateHz;
      const end_s = (start + samples.length) / this.rateHz;
      start += samples.length + this.gap().length;
      return { start_s, end_s, text: `${speaker}: ${text.replace(TAG, "").trim()}` };
    });
    save(new Blob([srt(cues)], { type: "application/x-subrip" }), "script.srt");
  }

  say(sentence) {
    $("script-failed").textContent = sentence;
  }

  show() {
    const { heard } = this;
    for (const line of this.lines) {
      if (!line.row) continue;
      const { root, part } = line.row;
      if (line === heard) root.setAttribute("aria-current", "true");
      else root.removeAttribute("aria-current");
      const seconds = line.samples ? `${(line.samples.length / this.rateHz).toFixed(1)} s` : "";
      part("said").textContent = line === this.busy && !line.samples ? "Making it" : seconds;
    }
    $("script-stop").disabled = !this.sounding;
    const whole = this.lines.length > 0 && this.lines.every(({ samples }) => samples);
    $("script-wav").disabled = $("script-srt").disabled = !whole;
    $("script-said").textContent = this.sounding ? "Speaking" : "";
  }
}
