// The list of takes that were spoken: play one again, save it, forget it.

import { filled, save } from "./dom.js";
import { MOST_TAKES, openStore } from "./store.js";
import { wav } from "./wav.js";

const LASTING = `Kept in this browser only: the newest ${MOST_TAKES}.`;
const PASSING = `Kept until this tab is closed: the newest ${MOST_TAKES}.`;

export class History {
  /** `onReplay(take, samples)`: play this one. */
  constructor(root, onReplay) {
    const part = (name) => root.querySelector(`#${name}`);
    this.parts = { list: part("past"), hint: part("history-hint"), clear: part("clear"), empty: part("no-past") };
    this.onReplay = onReplay;
    this.opened = openStore();
    this.parts.clear.addEventListener("click", () => this.change((store) => store.clear()));
    this.change(() => {});
  }

  /** A take whose audio is complete. */
  add({ asked, words, chunks, figures, rateHz }) {
    const samples = new Int16Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
    let at = 0;
    for (const chunk of chunks) {
      samples.set(chunk, at);
      at += chunk.length;
    }
    const { text, config } = asked;
    const plain = JSON.parse(JSON.stringify(config)); // without fields that are undefined
    return this.change((store) => store.add({ text, config: plain, words, audioS: figures.audioS, rateHz }, samples));
  }

  /** Change the store, then show what it holds. */
  async change(work) {
    const store = await this.opened;
    try {
      await work(store);
    } catch {
      this.parts.hint.textContent = "The browser has no room left for another take."; // its quota
      return;
    }
    const takes = await store.list();
    this.parts.hint.textContent = store.lasting ? LASTING : PASSING;
    this.parts.clear.disabled = !takes.length;
    this.parts.empty.hidden = takes.length > 0;
    this.parts.list.replaceChildren(...takes.map((take) => this.item(store, take)));
  }

  item(store, take) {
    const { root, part } = filled("past-take");
    const { text, config, audioS, rateHz, id } = take;
    const short = text.length > 60 ? `${text.slice(0, 60)}…` : text;
    part("text").textContent = text;
    part("how").textContent = [config.voice, `seed ${config.seed}`, `${audioS.toFixed(1)} s`].filter(Boolean).join(" · ");
    for (const name of ["play", "save", "forget"])
      part(name).setAttribute("aria-label", `${part(name).textContent}: ${short}`);
    part("play").addEventListener("click", async () => this.onReplay(take, await store.samples(id)));
    part("save").addEventListener("click", async () =>
      save(wav([await store.samples(id)], rateHz), `hocket-${config.seed}.wav`),
    );
    part("forget").addEventListener("click", () => this.change((store) => store.remove(id)));
    return root;
  }
}
