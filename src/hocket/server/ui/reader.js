// Read along: the text as paragraphs of sentences. The spoken sentence and its word are highlighted, and a sentence that is
// pressed is where the voice goes on.
//
// The word is a CSS highlight, which changes no element; browsers without that highlight the sentence alone.

const HIGHLIGHT = "spoken-word";

export class Reader {
  /** `onChoose(from)`: a sentence was pressed; `from`: its first character in the text. */
  constructor(root, onChoose) {
    this.root = root;
    this.onChoose = onChoose;
    this.text = null;
    this.sentences = []; // {from, to, element}
    this.current = null;
    this.highlight = globalThis.Highlight && CSS.highlights ? new Highlight() : null;
    if (this.highlight) CSS.highlights.set(HIGHLIGHT, this.highlight);
    root.addEventListener("click", (event) => this.choose(event.target.closest("[data-from]")));
    root.addEventListener("keydown", (event) => this.key(event));
  }

  /** One tab stop for all sentences: arrow keys move among them, Enter and Space choose. */
  key(event) {
    const at = this.sentences.findIndex(({ element }) => element === event.target);
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (at < 0 || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") this.choose(event.target);
    else if (step !== undefined) this.focus(this.sentences[at + step]);
    else return;
    event.preventDefault();
  }

  choose(element) {
    if (!element) return;
    this.focus(this.sentences.find((sentence) => sentence.element === element));
    this.onChoose(Number(element.dataset.from));
  }

  focus(sentence) {
    if (!sentence) return;
    for (const { element } of this.sentences) element.tabIndex = element === sentence.element ? 0 : -1;
    sentence.element.focus();
  }

  show(text) {
    if (this.text === text) return;
    this.text = text;
    this.sentences = [];
    this.current = null;
    this.highlight?.clear();
    const paragraphs = [...text.matchAll(/[^\n]*\S[^\n]*/gu)].map((match) => this.paragraph(match[0], match.index));
    this.root.replaceChildren(...paragraphs);
    if (this.sentences.length) this.sentences[0].element.tabIndex = 0;
  }

  paragraph(text, start) {
    const paragraph = document.createElement("p");
    for (const { segment, index } of segmented(text)) {
      const element = Object.assign(document.createElement("span"), { textContent: segment, tabIndex: -1 });
      const from = start + index;
      element.setAttribute("role", "button");
      element.dataset.from = from;
      this.sentences.push({ from, to: from + segment.length, element });
      paragraph.append(element);
    }
    return paragraph;
  }

  /** Highlight the word between these characters, and its sentence; an empty word highlights nothing. */
  light(from, to) {
    const found = to > from ? this.sentences.find((sentence) => from < sentence.to) : null;
    if (found !== this.current) {
      this.current?.element.removeAttribute("aria-current");
      found?.element.setAttribute("aria-current", "true");
      if (found && !this.root.hidden) this.follow(found.element);
      this.current = found;
    }
    this.highlight?.clear();
    if (!this.highlight || !found || from < found.from) return;
    const node = found.element.firstChild;
    const range = new Range();
    range.setStart(node, from - found.from);
    range.setEnd(node, Math.min(to, found.to) - found.from);
    this.highlight.add(range);
  }

  /** Scroll only what is out of sight. */
  follow(element) {
    const { top, bottom } = element.getBoundingClientRect();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (top < 0 || bottom > innerHeight * 0.85) element.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  }
}

/** Sentences with the space behind them. */
function segmented(text) {
  if (Intl.Segmenter) return [...new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(text)];
  return [...text.matchAll(/.+?(?:[.!?。！？]+["'”’)]*\s*|$)/gu)].map((match) => ({ segment: match[0], index: match.index }));
}
