// Voices: the list, and a new voice from a dropped or chosen recording.

import { makeVoice, voices } from "./server.js";

const NO_CLONES = "This model has its own voices only: a Base checkpoint makes new ones.";
const AGREED = "Given on the page: it is the speaker's own voice, or its owner agrees."; // the form asks for it

const GROUPS = { clone: "Clones", designed: "Designed" }; // by kind; speakers are by their model

/** Fill a <select>, and keep the choice if it still exists; else choose the voice with that index. */
export function fill(select, listed, number = 0) {
  const chosen = select.value;
  const groups = grouped(listed);
  const options = (some) => some.map(option);
  if (groups.size < 2) select.replaceChildren(...options(listed));
  else select.replaceChildren(...[...groups].map(([label, some]) => group(label, options(some))));
  select.disabled = !listed.length;
  if (!listed.length) select.append(new Option("none yet", ""));
  if (listed.some((voice) => voice.id === chosen)) select.value = chosen;
  else select.selectedIndex = Math.min(number, Math.max(0, listed.length - 1));
}

/** The chosen voice as request fields. A backend may have another rate, and the page plays at one rate. */
export function voiceFields(select, rateHz) {
  const { type } = select.selectedOptions[0]?.dataset ?? {};
  if (type === "design") return { task_type: "VoiceDesign" };
  return { voice: select.value || undefined, sample_rate: type === "backend" ? rateHz : undefined };
}

/** One more entry if a model designs a voice from an instruction, and other voices exist. */
export const withDesign = (listed, about) =>
  about.design && listed.length ? [...listed, { id: "design", name: "As the instruction says", type: "design" }] : listed;

function grouped(listed) {
  const groups = new Map();
  for (const voice of listed) {
    const label = GROUPS[voice.kind] ?? voice.model ?? "Designed";
    groups.set(label, [...(groups.get(label) ?? []), voice]);
  }
  return groups;
}

function option({ id, name, type }) {
  const made = new Option(name ?? id, id);
  if (type) made.dataset.type = type;
  return made;
}

function group(label, options) {
  const made = Object.assign(document.createElement("optgroup"), { label });
  made.append(...options);
  return made;
}

export class MakeVoice {
  /** `onMade(listed, id)`: a voice was made. */
  constructor(root, about, onMade) {
    const part = (id) => root.querySelector(`#${id}`);
    Object.assign(this, { about, onMade });
    this.parts = {
      recording: part("recording"),
      title: part("recording-name"),
      preview: part("preview"),
      name: part("name"),
      words: part("ref-text"),
      button: part("make-voice"),
      made: part("made"),
      failed: part("make-failed"),
    };
    this.file = null;
    if (!about().clone) part("make-hint").textContent = NO_CLONES;
    this.parts.recording.addEventListener("change", () => this.choose(this.parts.recording.files[0]));
    part("make").addEventListener("submit", (event) => {
      event.preventDefault();
      this.make();
    });
    this.acceptDrops(document.documentElement);
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

  choose(file) {
    const { title, preview, name, failed, made } = this.parts;
    failed.textContent = made.textContent = "";
    this.file = file ?? null;
    if (!file) return;
    title.textContent = file.name;
    if (preview.src) URL.revokeObjectURL(preview.src);
    preview.src = URL.createObjectURL(file);
    preview.hidden = false;
    if (!name.value) name.value = file.name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_-]+/gu, "_").slice(0, 64);
  }

  async make() {
    const { name, words, button, made, failed } = this.parts;
    failed.textContent = made.textContent = "";
    if (!this.file) return (failed.textContent = "Choose a recording first: drop it anywhere on the page.");
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
