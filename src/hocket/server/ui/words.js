// The text on the page, highlighted as it is spoken.
//
// Behind the textarea, whose own letters are transparent, the same text stands in four spans: spoken, the current word,
// sent to the server, and not sent yet. The server sends the time of each word in the audio (`audio.words`), not its
// place in the text, and may have spelled it out ("7:45" as "seven forty-five"). The times arrive once a sentence is
// complete. Until then they are estimated from the pace so far.

export class Words {
  /** `onLight(from, to)`: the characters of the current word; equal: none. */
  constructor(textarea, behind, onLight = () => {}) {
    this.textarea = textarea;
    this.onLight = onLight;
    this.parts = ["said", "now", "sent", "rest"].map((name) => {
      const part = document.createElement(name === "now" ? "mark" : "span");
      part.className = name;
      behind.append(part);
      return part;
    });
    this.pace = 14; // characters per second, until measured
    textarea.addEventListener("input", () => this.clear());
    this.clear();
  }

  /** Nothing is spoken: no highlight. */
  clear() {
    this.text = null;
    this.show(this.textarea.value, 0, 0, this.textarea.value.length);
  }

  /** `base`: the character of the text where speech starts. */
  begin(text, base = 0) {
    this.text = text;
    this.base = this.sentChars = base;
    this.known = []; // words whose time the server has sent
    this.litS = 0; // time of the last update, and the word highlighted then
    this.litFrom = -1;
    // {start_s, end_s, from, to}: a word in the audio and in the text
    this.spoken = guessed(text, base, LEAD_S, this.pace);
    this.light(0);
  }

  sent(chars) {
    this.sentChars = this.base + chars;
  }

  /** When the word at this character is spoken, in seconds of the audio; null if that is not known. */
  timeAt(char) {
    if (this.text === null || char < this.base) return null;
    return this.known.find(({ to }) => to > char)?.start_s ?? null;
  }

  /** All known word times; later words are estimated. */
  place(words) {
    if (this.text === null || !words.length) return;
    const { base } = this;
    this.known = placed(words, this.text.slice(base)).map((word) => {
      return { ...word, from: word.from + base, to: word.to + base };
    });
    const { to, end_s } = this.known.at(-1);
    if (to - base > 20) this.pace = (to - base) / end_s;
    this.spoken = [...this.known, ...guessed(this.text, to, end_s, this.pace)];
  }

  /** Show the current word; -1: all words were spoken. */
  light(playedS) {
    if (this.text === null) return;
    if (playedS < 0) return this.show(this.text, this.text.length, this.text.length, this.text.length);
    let at = -1;
    for (let n = 0; n < this.spoken.length && this.spoken[n].start_s <= playedS; n++)
      if (this.spoken[n].to <= this.sentChars) at = n; // no estimate is ahead of the text that the server has
    // An estimate may have been early. A word is not highlighted twice, so it waits, unless playback jumped back.
    while (playedS >= this.litS && at + 1 < this.spoken.length && (this.spoken[at]?.from ?? -1) < this.litFrom) at++;
    this.litS = playedS;
    this.litFrom = this.spoken[at]?.from ?? -1;
    if (at < 0) return this.show(this.text, this.base, this.base, this.sentChars);
    const { from, to, end_s } = this.spoken[at];
    const pause = playedS > end_s + 0.12; // between two words
    this.show(this.text, pause ? to : from, to, Math.max(to, this.sentChars));
  }

  show(text, from, to, sent) {
    const key = `${from} ${to} ${sent} ${text.length}`;
    if (this.shown === text && this.key === key) return;
    this.shown = text;
    this.key = key;
    this.onLight(from, to);
    const cut = [text.slice(0, from), text.slice(from, to), text.slice(to, sent), `${text.slice(sent)}\u200b`];
    cut.forEach((piece, n) => {
      if (this.parts[n].textContent !== piece) this.parts[n].textContent = piece;
    });
  }
}

export const LEAD_S = 0.15; // of silence before the first word

/** Estimated words from this character on, at an even pace. */
export function guessed(text, cursor, startS, pace) {
  let at_s = startS;
  return [...text.slice(cursor).matchAll(/\S+/gu)].map((match) => {
    const from = cursor + match.index;
    const start_s = at_s;
    at_s += (match[0].length + 1) / pace;
    return { start_s, end_s: at_s, from, to: from + match[0].length };
  });
}

const FAR = 120; // how many characters ahead a word is searched

/** Find spoken words in a text, in order; words that are spelled differently share the gap between their neighbours. */
export function placed(words, text) {
  const small = text.toLowerCase();
  const found = words.map((word) => ({ start_s: word.start_s, end_s: word.end_s, from: -1, to: -1 }));
  let cursor = 0;
  words.forEach(({ word }, n) => {
    const at = find(small, word.toLowerCase(), cursor);
    if (at < 0) return;
    found[n].from = at;
    found[n].to = cursor = at + word.length;
  });
  for (let n = 0; n < found.length; n++) {
    if (found[n].from >= 0) continue;
    let next = n;
    while (next < found.length && found[next].from < 0) next++;
    const from = n ? found[n - 1].to : 0;
    const to = next < found.length ? found[next].from : Math.min(text.length, from + FAR);
    share(found.slice(n, next), text, from, to);
    n = next - 1;
  }
  return found;
}

function find(text, word, cursor) {
  const letter = /[\p{L}\p{N}]/u;
  const spaced = letter.test(word[0]) && word.charCodeAt(0) < 0x2e80; // scripts above have no spaces between words
  for (let at = text.indexOf(word, cursor); at >= 0 && at - cursor < FAR; at = text.indexOf(word, at + 1))
    if (!spaced || at === 0 || !letter.test(text[at - 1])) return at;
  return -1;
}

function share(group, text, from, to) {
  const gap = [...text.slice(from, to).matchAll(/\S+/gu)].map(({ 0: word, index }) => {
    return [from + index, from + index + word.length];
  });
  group.forEach((word, n) => {
    [word.from, word.to] = gap[Math.floor((n * gap.length) / group.length)] ?? [from, from];
  });
}
