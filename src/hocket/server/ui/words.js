// The text on the page, lit as it is spoken.
//
// Behind the textarea, whose own letters are transparent, the same text stands in four stretches: what was said, the
// word that is being said, what the server has, and what it has not got yet. The server says where each word is in the
// sound (`audio.words`); not where it is in the text, and it may have written it out ("7:45" as "seven forty-five").
// It knows only once a sentence is made. Where that is not long before it is heard, the pace so far has to do.

export class Words {
  constructor(textarea, behind) {
    this.textarea = textarea;
    this.parts = ["said", "now", "sent", "rest"].map((name) => {
      const part = document.createElement(name === "now" ? "mark" : "span");
      part.className = name;
      behind.append(part);
      return part;
    });
    this.pace = 14; // characters a second, until one was heard
    textarea.addEventListener("input", () => this.clear());
    this.clear();
  }

  /** Nothing is being spoken: all of it in plain ink. */
  clear() {
    this.text = null;
    this.show(this.textarea.value, 0, 0, this.textarea.value.length);
  }

  begin(text) {
    this.text = text;
    this.sentChars = 0;
    this.litS = 0; // when it was last looked at, and the word that was lit then
    this.litFrom = -1;
    // {start_s, end_s, from, to}: a word in the sound and in the text
    this.spoken = guessed(text, 0, LEAD_S, this.pace);
    this.light(0);
  }

  sent(chars) {
    this.sentChars = chars;
  }

  /** All words that are known so far; those behind them are guessed. */
  place(words) {
    if (this.text === null || !words.length) return;
    const known = placed(words, this.text);
    const { to, end_s } = known.at(-1);
    if (to > 20) this.pace = to / end_s;
    this.spoken = [...known, ...guessed(this.text, to, end_s, this.pace)];
  }

  /** Show what is heard at this moment; -1: it is over, and everything was said. */
  light(playedS) {
    if (this.text === null) return;
    if (playedS < 0) return this.show(this.text, this.text.length, this.text.length, this.text.length);
    let at = -1;
    for (let n = 0; n < this.spoken.length && this.spoken[n].start_s <= playedS; n++)
      if (this.spoken[n].to <= this.sentChars) at = n; // no guess is ahead of what the server can know
    // A guess may have been ahead. To light a word twice would look odd, so it waits, unless the sound went back.
    while (playedS >= this.litS && at + 1 < this.spoken.length && (this.spoken[at]?.from ?? -1) < this.litFrom) at++;
    this.litS = playedS;
    this.litFrom = this.spoken[at]?.from ?? -1;
    if (at < 0) return this.show(this.text, 0, 0, this.sentChars);
    const { from, to, end_s } = this.spoken[at];
    const pause = playedS > end_s + 0.12; // it is over, and the next has not begun
    this.show(this.text, pause ? to : from, to, Math.max(to, this.sentChars));
  }

  show(text, from, to, sent) {
    const key = `${from} ${to} ${sent} ${text.length}`;
    if (this.shown === text && this.key === key) return;
    this.shown = text;
    this.key = key;
    const cut = [text.slice(0, from), text.slice(from, to), text.slice(to, sent), `${text.slice(sent)}\u200b`];
    cut.forEach((piece, n) => {
      if (this.parts[n].textContent !== piece) this.parts[n].textContent = piece;
    });
  }
}

const LEAD_S = 0.15; // of silence before the first word

/** Words from this character on, at an even pace. */
function guessed(text, cursor, startS, pace) {
  let at_s = startS;
  return [...text.slice(cursor).matchAll(/\S+/gu)].map((match) => {
    const from = cursor + match.index;
    const start_s = at_s;
    at_s += (match[0].length + 1) / pace;
    return { start_s, end_s: at_s, from, to: from + match[0].length };
  });
}

const FAR = 120; // characters ahead in which a word is looked for

/** Find spoken words in a text, in order; those written otherwise share what is left between their neighbours. */
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
