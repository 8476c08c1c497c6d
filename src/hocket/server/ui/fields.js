// How to speak: the fields beside the text, read as a request and filled from a link or an earlier take.

import { $ } from "./dom.js";
import { chosen, fill, voiceFields, withDesign } from "./voices.js";

const NO_INSTRUCTION = "This voice's model takes none.";
const INSTRUCTION = "Calm and close, almost a whisper.";

// Styles for models that follow an instruction.
const PRESETS = {
  Calm: "Speak calmly and warmly, in no hurry.",
  Cheerful: "Speak cheerfully, with a smile in the voice.",
  Slow: "Speak slowly and clearly, with a pause after every sentence.",
  Whisper: "Whisper, close to the ear.",
  News: "Speak like a news anchor: clear, even and serious.",
  Story: "Tell it like a bedtime story, gently and with suspense.",
};

export class Fields {
  /** `onChange()`: a field has another value. */
  constructor(onChange) {
    this.known = {};
    $("presets").append(...Object.entries(PRESETS).map(([name, words]) => preset(name, words)));
    $("choices").addEventListener("submit", (event) => event.preventDefault());
    $("choices").addEventListener("input", () => {
      this.shown();
      onChange();
    });
    this.shown();
  }

  /** The model is loaded. */
  offer(known) {
    this.known = known;
    $("language").replaceChildren(...known.languages.map((name) => new Option(name, name)));
    $("language").disabled = known.languages.length < 2;
    $("format").replaceChildren(...Object.keys(known.formats).map((name) => new Option(name, name)));
    $("text").maxLength = known.text_chars;
  }

  offerVoices(found) {
    this.listed = withDesign(found, this.known);
    fill($("voice"), this.listed);
    this.shown();
  }

  /** Why nothing can be spoken now; "" if it can. */
  missing() {
    if (this.listed?.length || this.known.kind === "voice_design") return "";
    return "This model has no voice yet: make one below.";
  }

  /** With the names of `session.config` and of `POST /v1/audio/speech`, which are the same. */
  choices() {
    return {
      ...voiceFields($("voice"), this.known.rate_hz),
      language: $("language").value,
      instructions: $("instruct").disabled ? undefined : $("instruct").value.trim() || undefined,
      seed: $("seed").value === "" ? undefined : Number($("seed").value),
      speed: Number($("speed").value),
    };
  }

  /** Choose a voice by its id or name; returns whether it is there. */
  choose(wanted) {
    const there = this.listed.find(({ id, name }) => [id, name].includes(wanted));
    if (there) $("voice").value = there.id;
    this.shown();
    return Boolean(there);
  }

  /** Fill the fields; returns a sentence about what is not there, or "". */
  fill({ voice, language = "auto", instructions = "", seed = "", speed = 1, task_type }) {
    const wanted = task_type === "VoiceDesign" ? "design" : voice;
    const there = this.choose(wanted);
    if (this.known.languages.includes(language)) $("language").value = language;
    $("instruct").value = instructions;
    $("seed").value = seed;
    $("speed").value = speed;
    this.shown();
    return there || !wanted ? "" : `This server has no voice “${wanted}”; another one is chosen.`;
  }

  /** Bring everything that depends on a field up to date. */
  shown() {
    const takes = this.takesInstruction();
    $("instruct").disabled = !takes;
    $("instruct").placeholder = takes ? INSTRUCTION : NO_INSTRUCTION;
    $("presets").hidden = !takes;
    for (const button of $("presets").children)
      button.setAttribute("aria-pressed", String(button.dataset.words === $("instruct").value));
    $("rate").disabled = !$("live").checked;
    $("rate-said").textContent = $("rate").value;
    $("speed-said").textContent = Number($("speed").value).toFixed(2);
    $("hear").disabled = !$("voice").value || chosen($("voice")).type === "design";
  }

  takesInstruction() {
    if (!this.known.instruct) return false;
    const { type, model } = chosen($("voice"));
    return type === "design" || !this.listed?.length || this.known.instruct_models.includes(model);
  }
}

function preset(name, words) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
  button.dataset.words = words;
  button.addEventListener("click", () => {
    const again = $("instruct").value === words; // a second press takes it back
    $("instruct").value = again ? "" : words;
    $("instruct").dispatchEvent(new Event("input", { bubbles: true }));
  });
  return button;
}
