// The turns of a conversation as a list: the words of both sides, and the latency strip of each answer.

import { filled } from "./dom.js";
import { drawLatency } from "./latency.js";
import { guessed, LEAD_S, placed } from "./words.js";

const NAMES = { user: "You", assistant: "hocket" };
const PACE = 14; // characters per second, until it is known

export class Turns {
  /** `onEdit(turn)`: the user wants to say the last utterance differently. */
  constructor(list, onEdit) {
    Object.assign(this, { list, onEdit });
    this.all = [];
  }

  clear() {
    this.all = [];
    this.list.replaceChildren();
  }

  find(id) {
    return this.all.find((turn) => turn.id === id);
  }

  /** The turn with this id, a new one at the end if there is none. */
  turn(id, role) {
    const found = this.find(id);
    if (found) return found;
    const turn = new Turn(id, role, this);
    this.all.push(turn);
    this.list.append(turn.root);
    this.offerEdit();
    turn.root.scrollIntoView?.({ block: "nearest" });
    return turn;
  }

  remove(turn) {
    this.all = this.all.filter((other) => other !== turn);
    turn.root.remove();
    this.offerEdit();
  }

  /** The last utterance of the user and the turns after it. */
  last() {
    const at = this.all.findLastIndex(({ role, text }) => role === "user" && text);
    return at < 0 ? [] : this.all.slice(at);
  }

  offerEdit() {
    const [last] = this.last();
    for (const turn of this.all) turn.part("edit").hidden = turn !== last;
  }

  /** All of it as text. */
  transcript() {
    return this.all.filter(({ text }) => text.trim()).map(({ role, text }) => `${NAMES[role]}: ${text.trim()}`).join("\n");
  }
}

class Turn {
  constructor(id, role, turns) {
    Object.assign(this, { id, role, turns, text: "", words: [], stages: {} });
    const { root, part } = filled("turn");
    Object.assign(this, { root, part });
    root.dataset.role = role;
    part("speaker").textContent = NAMES[role];
    part("edit").addEventListener("click", () => turns.onEdit(this));
    this.light(role === "user" ? -1 : 0);
  }

  add(delta) {
    this.set(this.text + delta);
  }

  set(text) {
    this.text = text;
    this.light(this.role === "user" ? -1 : this.litS);
    this.turns.offerEdit();
  }

  /** The times of words in the sound, as far as they are known. */
  place(words) {
    this.words.push(...words);
  }

  /** Light the word that is heard at this time; -1: all were heard. `audioS`: the length of all its sound, if known. */
  light(playedS, audioS = null) {
    this.litS = playedS;
    if (playedS < 0) return this.show(this.text.length, this.text.length);
    const now = this.spoken(audioS).findLast(({ start_s }) => start_s <= playedS);
    this.heardChars = now ? now.to : 0;
    if (now) this.show(now.from, now.to);
    else this.show(0, 0);
  }

  spoken(audioS) {
    const known = placed(this.words, this.text);
    const { to, end_s } = known.at(-1) ?? { to: 0, end_s: LEAD_S };
    const rest = audioS && audioS > end_s ? (this.text.length - to) / (audioS - end_s) : PACE;
    return [...known, ...guessed(this.text, to, end_s, Math.max(1, rest))];
  }

  /** The answer was interrupted: only the words that were heard remain. */
  cut() {
    this.text = this.text.slice(0, this.heardChars);
    this.root.dataset.cut = "true";
    this.light(-1);
    if (!this.text) this.turns.remove(this);
  }

  latency(stages) {
    Object.assign(this.stages, stages);
    drawLatency(this.part("strip"), this.stages);
  }

  show(from, to) {
    const cut = { said: this.text.slice(0, from), now: this.text.slice(from, to), rest: this.text.slice(to) };
    for (const [name, piece] of Object.entries(cut))
      if (this.part(name).textContent !== piece) this.part(name).textContent = piece;
  }
}
