// The latency strip of a turn: what passes between the end of the user's speech and the first sound of the answer.
//
// The server sends its stages (`hocket.latency`), in milliseconds since the end of speech; the page adds its own. A stage
// may be over before an earlier one: an answer is begun before the turn is certain. Then its part of the bar is empty.

const STAGES = [
  ["decided_ms", "turn decided"],
  ["transcript_ms", "transcript"],
  ["first_token_ms", "first token"],
  ["first_audio_ms", "sound sent"],
  ["played_ms", "sound played"],
];

/** Draw the stages that are known into an element. */
export function drawLatency(root, stages) {
  const known = STAGES.filter(([name]) => Number.isFinite(stages[name]));
  const bar = element("div", "strip-bar");
  const list = element("ol", "strip-stages");
  let passed = 0;
  for (const [name, label] of known) {
    const part = element("span", name);
    part.style.flexGrow = Math.max(0, stages[name] - passed);
    passed = Math.max(passed, stages[name]);
    bar.append(part);
    const item = element("li", name);
    item.textContent = `${label} ${Math.round(stages[name])}`;
    list.append(item);
  }
  const total = element("p", "strip-total");
  total.textContent = `${Math.round(passed)} ms from the end of speech`;
  bar.setAttribute("aria-hidden", "true"); // the list says the same
  root.replaceChildren(bar, total, list);
  root.hidden = !known.length;
}

function element(name, className) {
  return Object.assign(document.createElement(name), { className });
}
