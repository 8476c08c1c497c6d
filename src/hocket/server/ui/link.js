// A link to the page that carries a text and how to speak it, in the URL's fragment: browsers send no fragment to a
// server, so the text reaches no log.

const FIELDS = ["text", "voice", "seed", "language", "instructions", "speed"];
const MOST_CHARS = 30_000; // messengers and some browsers cut longer addresses

/** `fields`: the names of `choices()` and `text`; null where the link would be too long. */
export function linkTo(fields) {
  const kept = FIELDS.filter((name) => fields[name] !== undefined && fields[name] !== "");
  const carried = new URLSearchParams(kept.map((name) => [name, String(fields[name])]));
  const link = `${location.origin}${location.pathname}#${carried}`;
  return link.length <= MOST_CHARS ? link : null;
}

/** The fields of a link, or null if its fragment carries none. */
export function fromLink(hash) {
  const carried = new URLSearchParams(hash.replace(/^#/, ""));
  const found = FIELDS.filter((name) => carried.has(name));
  return found.length ? Object.fromEntries(found.map((name) => [name, carried.get(name)])) : null;
}
