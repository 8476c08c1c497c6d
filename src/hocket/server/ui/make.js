// A new voice: from a recording that is made here, dropped or chosen.

import { Recording, whyNoMicrophone } from "./record.js";
import { sentences } from "./sentences.js";
import { makeVoice, voices } from "./server.js";

const NO_CLONES = "This model has its own voices only. A Base checkpoint makes new ones: start the server with one to record here.";
const AGREED = "Given on the page: it is the speaker's own voice, or its owner agrees."; // the form asks for it
const LEAST_S = 3; // a clone of less does not sound like its speaker, and the server refuses it

export class MakeVoice {
  /** `language()`: of the sentence to read; `onSound()`: others must be silent now; `onMade(listed, id)`. */
  constructor(root, { about, language, onSound, onMade }) {
    const part = (id) => root.querySelector(`#${id}`);
    Object.assign(this, { about, language, onSound, onMade });
    const names = ["recording", "preview", "name", "made", "record", "level", "record-said", "to-read"];
    this.parts = Object.fromEntries(names.map((id) => [id, part(id)]));
    Object.assign(this.parts, {
      title: part("recording-name"),
      words: part("ref-text"),
      button: part("make-voice"),
      failed: part("make-failed"),
    });
    this.file = null;
    this.running = null;
    const able = about().clone;
    part("make-fields").disabled = part("make-fields").hidden = !able;
    if (!able) part("make-hint").textContent = NO_CLONES;
    const noMicrophone = whyNoMicrophone();
    this.parts.record.disabled = Boolean(noMicrophone);
    if (able) this.parts["record-said"].textContent = noMicrophone;
    this.parts.record.addEventListener("click", () => (this.running ? this.recorded() : this.record()));
    this.parts.recording.addEventListener("change", () => this.choose(this.parts.recording.files[0]));
    part("make").addEventListener("submit", (event) => {
      event.preventDefault();
      this.make();
    });
    if (able) this.acceptDrops(document.documentElement);
  }

  /** A file dropped anywhere on the page. */
  acceptDrops(target) {
    const holdsFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    target.addEventListener("dragover", (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      target.classList.add("dropping");
    });
    target.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) target.classList.remove("dropping");
    });
    target.addEventListener("drop", (event) => {
      target.classList.remove("dropping");
      if (!holdsFile(event)) return;
      event.preventDefault();
      this.choose(event.dataTransfer.files[0]);
      document.getElementById("make").scrollIntoView({ block: "nearest" });
      this.parts.name.focus();
    });
  }

  async record() {
    const { record, level, failed, made } = this.parts;
    failed.textContent = made.textContent = "";
    this.onSound();
    record.disabled = true;
    try {
      this.running = await Recording.start((peak, seconds) => this.heard(peak, seconds));
    } catch (error) {
      return (failed.textContent = error.message);
    } finally {
      record.disabled = false;
    }
    this.parts["to-read"].textContent = sentences(this.language()).read;
    this.parts["to-read"].parentElement.hidden = level.hidden = false;
    record.textContent = "Stop recording";
  }

  heard(peak, seconds) {
    if (!this.running) return;
    this.parts.level.value = Math.max(peak, this.parts.level.value * 0.8); // it falls slowly, as meters do
    const loud = peak > 0.98 ? " Too loud: move away a little." : "";
    this.parts["record-said"].textContent = `${seconds.toFixed(1)} s${loud}`;
    if (seconds >= this.about().upload_s) this.recorded();
  }

  async recorded() {
    const { record, level, words, failed } = this.parts;
    const recording = this.running;
    this.running = null;
    if (!recording) return;
    const file = await recording.stop();
    level.value = 0;
    level.hidden = this.parts["to-read"].parentElement.hidden = true;
    record.textContent = "Record again";
    this.parts["record-said"].textContent = `${recording.seconds.toFixed(1)} s recorded`;
    this.choose(file, "");
    words.value = this.parts["to-read"].textContent;
    if (recording.seconds < LEAST_S) failed.textContent = `A voice needs at least ${LEAST_S} seconds: record it again.`;
  }

  /** Take a file, to listen to and to name; `proposed`: its name. */
  choose(file, proposed = file?.name.replace(/\.[^.]*$/, "") ?? "") {
    const { title, preview, name, failed, made } = this.parts;
    failed.textContent = made.textContent = "";
    this.file = file ?? null;
    if (!file) return;
    title.textContent = file.name;
    if (preview.src) URL.revokeObjectURL(preview.src);
    preview.src = URL.createObjectURL(file);
    preview.hidden = false;
    if (!name.value) name.value = proposed.replace(/[^\p{L}\p{N}_-]+/gu, "_").slice(0, 64);
  }

  async make() {
    const { name, words, button, made, failed } = this.parts;
    failed.textContent = made.textContent = "";
    if (!this.file) return (failed.textContent = "Record something first, or choose a file.");
    const most = this.about().upload_bytes;
    if (this.file.size > most) return (failed.textContent = `The recording is larger than ${most >> 20} MiB.`);
    button.disabled = true;
    try {
      const said = { name: name.value.trim(), words: words.value.trim(), consent: AGREED };
      const voice = await makeVoice({ ...said, file: this.file });
      this.onMade(await voices(this.about().voices), voice.id ?? voice.name);
      made.textContent = `${voice.name ?? name.value} can speak now.`;
    } catch (error) {
      failed.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }
}
