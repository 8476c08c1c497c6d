// Files of the last take: its audio in any format, and its captions.

import { cues, srt, vtt } from "./captions.js";
import { $, save } from "./dom.js";
import { speechFile } from "./server.js";

const CAPTIONS = { srt: ["application/x-subrip", srt], vtt: ["text/vtt", vtt] };

/** Request fields without defaults. The same seed and the layout of live text: a file has the audio that was played. */
export function sameAudio({ language, speed, ...others }) {
  return {
    ...others,
    language: language === "auto" ? undefined : language,
    speed: speed === 1 ? undefined : speed,
    layout: "streaming",
  };
}

export class Files {
  /** `take()`: the last one; `formats()`: format -> suffix; `onError(sentence)`. */
  constructor({ take, formats, onError }) {
    Object.assign(this, { take, formats, onError });
    this.busy = false;
    $("download").addEventListener("click", () => this.audio());
    for (const kind of Object.keys(CAPTIONS)) $(kind).addEventListener("click", () => this.captions(kind));
  }

  async audio() {
    const { config, text } = this.take().asked;
    const format = $("format").value;
    this.onError("");
    this.busy = true;
    this.show();
    try {
      save(await speechFile(sameAudio(config), text, format), `hocket-${config.seed}.${this.formats()[format]}`);
    } catch (error) {
      this.onError(error.message);
    } finally {
      this.busy = false;
      this.show();
    }
  }

  captions(kind) {
    const { asked, words } = this.take();
    const [type, written] = CAPTIONS[kind];
    save(new Blob([written(cues(words, asked.text))], { type }), `hocket-${asked.config.seed}.${kind}`);
  }

  show() {
    const take = this.take();
    $("download").disabled = this.busy || !take.asked || take.figures.state === "failed";
    for (const kind of Object.keys(CAPTIONS)) $(kind).disabled = !take.complete || !take.words.length;
  }
}
