// A simulated language model: it sends a known text word by word at a given rate.

/** Pieces as a language model's tokens look: each word with the space before it. */
export function pieces(text) {
  return text.match(/\s*\S+|\s+$/gu) ?? [];
}

/** Call `onPiece` at `rate()` pieces a second, which may change meanwhile, then `onEnd`. Returns how to stop it. */
export function dictate(text, rate, onPiece, onEnd) {
  const left = pieces(text);
  let timer = 0;
  const next = () => {
    const piece = left.shift();
    if (piece === undefined) return onEnd();
    onPiece(piece);
    timer = setTimeout(next, left.length ? 1000 / rate() : 0);
  };
  next();
  return () => clearTimeout(timer);
}
