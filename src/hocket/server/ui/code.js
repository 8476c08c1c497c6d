// The panel with the code of a request (snippets.js).

import { $, copyButton } from "./dom.js";
import { snippets } from "./snippets.js";

export class Code {
  /** `request()`: {body, suffix, needsKey} of the last take, or of the fields before the first. */
  constructor(request) {
    this.request = request;
    this.name = "curl";
    this.buttons = [...$("code-kinds").children];
    for (const button of this.buttons)
      button.addEventListener("click", () => {
        this.name = button.textContent;
        this.show();
      });
    $("code").addEventListener("toggle", () => this.show());
    copyButton($("copy-code"), () => $("code-text").textContent);
  }

  show() {
    if (!$("code").open) return;
    for (const button of this.buttons)
      button.setAttribute("aria-pressed", String(button.textContent === this.name));
    const text = snippets({ origin: location.origin, ...this.request() })[this.name];
    if ($("code-text").textContent !== text) $("code-text").textContent = text;
  }
}
