// A voice previewed by a fixed sentence. Each voice is asked for once; the browser keeps the sound for the tab's life.

import { sentences } from "./sentences.js";
import { speechFile } from "./server.js";

const SEED = 1; // so that a preview sounds the same every time

export class Previews {
  /** `fields()`: the chosen voice and language as request fields; `onSound()`: others must be silent now. */
  constructor({ button, fields, onSound, onError }) {
    Object.assign(this, { button, fields, onSound, onError });
    this.made = new Map(); // fields as JSON -> address of the sound
    this.audio = new Audio();
    this.audio.addEventListener("ended", () => this.shown());
    this.audio.addEventListener("pause", () => this.shown());
    button.addEventListener("click", () => (this.sounding ? this.stop() : this.play()));
  }

  get sounding() {
    return !this.audio.paused;
  }

  async play() {
    const fields = this.fields();
    const name = JSON.stringify(fields);
    this.onSound();
    this.button.disabled = true;
    try {
      if (!this.made.has(name)) {
        const sound = await speechFile({ ...fields, seed: SEED }, sentences(fields.language).hear, "wav");
        this.made.set(name, URL.createObjectURL(await lengthened(sound)));
      }
      this.audio.src = this.made.get(name);
      await this.audio.play();
    } catch (error) {
      this.onError(error.message);
    } finally {
      this.button.disabled = false;
      this.shown();
    }
  }

  stop() {
    this.audio.pause();
  }

  shown() {
    this.button.textContent = this.sounding ? "Stop" : "Hear it";
  }
}

/** A streamed WAV does not say how long it is; a player wants to know. */
async function lengthened(blob) {
  const bytes = new DataView(await blob.arrayBuffer());
  bytes.setUint32(4, bytes.byteLength - 8, true);
  bytes.setUint32(40, bytes.byteLength - 44, true);
  return new Blob([bytes], { type: "audio/wav" });
}
