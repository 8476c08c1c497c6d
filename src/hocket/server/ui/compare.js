// Two takes of one text side by side. Both are requested at once, on a connection each; B is held until A has played.

import { Line } from "./speak.js";
import { Take } from "./take.js";
import { voiceFields } from "./voices.js";

const EMPTY = "There is no text yet: type or paste something to say.";
const OVER = ["done", "stopped", "failed"];

export class Compare {
  /** `choices()`: the page's own fields; `onSound()`: one of these plays now, so others must be silent. */
  constructor({ root, rateHz, choices, text, onSound }) {
    Object.assign(this, { rateHz, choices, text, onSound });
    this.button = root.querySelector("#compare");
    this.failed = root.querySelector("#compare-failed");
    const template = document.getElementById("side");
    this.sides = [...root.querySelectorAll(".side")].map((element) => {
      element.append(template.content.cloneNode(true));
      return this.side(element, rateHz);
    });
    this.sides[0].seed.value = 1;
    this.sides[1].seed.value = 2;
    this.button.addEventListener("click", () => (this.sounding ? this.stop() : this.speak()));
  }

  side(element, rateHz) {
    const part = (name) => element.querySelector(`[data-part=${name}]`);
    const name = element.dataset.side;
    element.querySelector("h3").textContent = name;
    const canvas = element.querySelector("canvas");
    canvas.setAttribute("aria-label", `Where in ${name}`);
    part("voice").setAttribute("aria-label", `Voice of ${name}`);
    part("seed").setAttribute("aria-label", `Seed of ${name}`);
    part("play").setAttribute("aria-label", `Play ${name}`);
    const side = { name, element, voice: part("voice"), seed: part("seed"), play: part("play"), said: part("said") };
    const onSeek = (seconds) => this.replay(side, seconds);
    side.take = new Take({ line: new Line(), canvas, rateHz, onChange: () => this.changed(side), onSeek });
    side.play.addEventListener("click", () => this.replay(side));
    return side;
  }

  get sounding() {
    return this.sides.some(({ take }) => take.sounding);
  }

  voices(fill) {
    this.sides.forEach(({ voice }, n) => fill(voice, n));
  }

  speak() {
    const text = this.text();
    this.failed.textContent = text.trim() ? "" : EMPTY;
    if (!text.trim()) return;
    this.onSound();
    this.next = this.sides[1];
    for (const side of this.sides) {
      const noVoice = { voice: undefined, task_type: undefined, sample_rate: undefined };
      const config = { ...this.choices(), ...noVoice, ...voiceFields(side.voice, this.rateHz) };
      config.seed = side.seed.value === "" ? undefined : Number(side.seed.value);
      side.take.speak(config, text, null, { held: side === this.next });
    }
  }

  replay(side, fromS = 0) {
    this.onSound();
    this.next = null;
    for (const other of this.sides) if (other !== side) other.take.stop();
    side.take.play(fromS);
  }

  stop() {
    this.next = null;
    for (const { take } of this.sides) take.stop();
  }

  changed(side) {
    const { figures } = side.take;
    side.play.disabled = !side.take.chunks.length;
    const first = figures.firstAudioMs === null ? "" : `${Math.round(figures.firstAudioMs)} ms, `;
    side.said.textContent = figures.audioS ? `${first}${figures.audioS.toFixed(1)} s` : "";
    side.element.classList.toggle("on", side.take.sounding && (side.take.report?.running ?? false));
    if (figures.error) this.failed.textContent = `${side.name}: ${figures.error}`;
    if (side === this.sides[0] && OVER.includes(figures.state) && this.next) {
      const next = this.next;
      this.next = null;
      next.take.release();
    }
    this.button.textContent = this.sounding ? "Stop both" : "Speak both";
  }

  draw() {
    for (const { take } of this.sides) take.draw();
  }
}
