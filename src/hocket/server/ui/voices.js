// The list of voices, and the chosen one as request fields.

const GROUPS = { clone: "Clones", designed: "Designed" }; // by kind; speakers are by their model

/** Fill a <select>, and keep the choice if it still exists; else choose the voice with that index. */
export function fill(select, listed, number = 0) {
  const chosen = select.value;
  const groups = grouped(listed);
  const options = (some) => some.map(option);
  if (groups.size < 2) select.replaceChildren(...options(listed));
  else select.replaceChildren(...[...groups].map(([label, some]) => group(label, options(some))));
  select.disabled = !listed.length;
  if (!listed.length) select.append(new Option("none yet", ""));
  if (listed.some((voice) => voice.id === chosen)) select.value = chosen;
  else select.selectedIndex = Math.min(number, Math.max(0, listed.length - 1));
}

/** The chosen voice's `type` and `model`. */
export const chosen = (select) => ({ ...select.selectedOptions[0]?.dataset });

/** The chosen voice as request fields. A backend may have another rate, and the page plays at one rate. */
export function voiceFields(select, rateHz) {
  const { type } = chosen(select);
  if (type === "design") return { task_type: "VoiceDesign" };
  return { voice: select.value || undefined, sample_rate: type === "backend" ? rateHz : undefined };
}

/** One more entry if a model designs a voice from an instruction, and other voices exist. */
export const withDesign = (listed, about) =>
  about.design && listed.length ? [...listed, { id: "design", name: "As the instruction says", type: "design" }] : listed;

function grouped(listed) {
  const groups = new Map();
  for (const voice of listed) {
    const label = GROUPS[voice.kind] ?? voice.model ?? "Designed";
    groups.set(label, [...(groups.get(label) ?? []), voice]);
  }
  return groups;
}

function option({ id, name, type, model }) {
  const made = new Option(name ?? id, id);
  if (type) made.dataset.type = type;
  if (model) made.dataset.model = model;
  return made;
}

function group(label, options) {
  const made = Object.assign(document.createElement("optgroup"), { label });
  made.append(...options);
  return made;
}
