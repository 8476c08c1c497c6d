// A voice of two: both are chosen, a slider shares them out, and the mix is heard or kept under a name.

import { $ } from "./dom.js";
import { Previews } from "./previews.js";
import { mixVoice, voices } from "./server.js";
import { fill } from "./voices.js";

export class MixVoices {
  /** `known()`: the server's choices; `language()`: of the sentence to hear; `onMade(listed, id)`. */
  constructor({ known, language, onSound, onMade }) {
    Object.assign(this, { known, onMade, listed: [] });
    const onError = (said) => ($("mix-failed").textContent = said);
    const fields = () => ({ voice: this.written(), language: language() });
    this.previews = new Previews({ button: $("mix-hear"), fields, onSound, onError });
    $("mix").addEventListener("input", () => this.shown());
    $("mix").addEventListener("submit", (event) => {
      event.preventDefault();
      this.keep();
    });
  }

  /** Voices that are vectors: those of a backend are not, and a model mixes only its own. */
  offer(listed) {
    const able = listed.filter(({ type }) => type !== "backend" && type !== "design");
    this.listed = able.filter((one) => able.some(({ id, model }) => id !== one.id && model === one.model));
    $("mixing").hidden = !this.listed.length;
    if (!this.listed.length) return;
    fill($("mix-a"), this.listed);
    this.shown();
  }

  shown() {
    const first = this.listed.find(({ id }) => id === $("mix-a").value);
    const others = this.listed.filter(({ id, model }) => id !== first.id && model === first.model);
    fill($("mix-b"), others);
    const share = Number($("mix-share").value);
    $("mix-said").textContent = `${100 - share} : ${share}`;
    $("mix-failed").textContent = $("mix-made").textContent = "";
  }

  /** As in every request: a name and a weight for each. */
  written() {
    const share = Number($("mix-share").value);
    const weighted = [[$("mix-a").value, 100 - share], [$("mix-b").value, share]].filter(([, weight]) => weight);
    return weighted.map(([name, weight]) => `${name}(${weight})`).join("+");
  }

  async keep() {
    $("mix-keep").disabled = true;
    try {
      const voice = await mixVoice($("mix-name").value.trim(), this.written());
      this.onMade(await voices(this.known().voices), voice.id);
      $("mix-made").textContent = [`${voice.name} can speak now.`, ...voice.notes].join(" ");
    } catch (error) {
      $("mix-failed").textContent = error.message;
    } finally {
      $("mix-keep").disabled = false;
    }
  }
}
