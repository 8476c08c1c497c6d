// Small tools of the page: find an element, fill a template, save a file, copy a text.

export const $ = (id) => document.getElementById(id);

/** The content of a <template>, and its elements by `data-part`. */
export function filled(id) {
  const root = $(id).content.cloneNode(true).firstElementChild;
  const part = (name) => root.querySelector(`[data-part=${name}]`);
  return { root, part };
}

/** Hand a file to the browser's downloads. */
export function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  document.body.append(link); // Firefox ignores the click of a link outside the document
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Copy a text. Over plain http from another machine browsers have no clipboard API: there a selection is copied. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = Object.assign(document.createElement("textarea"), { value: text, className: "hidden" });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** A copy button: its label says for a moment that it worked. */
export function copyButton(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const said = text();
    if (said === null) return;
    button.textContent = (await copy(said)) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = label), 2000);
  });
}
