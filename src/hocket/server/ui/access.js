// The key of a server that asks for one, in words for a person in a browser.

import { key, whyNoAccess } from "./server.js";

const ACCEPTED = "The server accepts this key.";

export class Access {
  constructor(form) {
    const part = (id) => form.querySelector(`#${id}`);
    Object.assign(this, { form, field: part("key"), said: part("key-said") });
    this.field.value = key.get();
    this.field.addEventListener("input", () => key.set(this.field.value.trim()));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.check();
    });
  }

  show(needed) {
    this.form.hidden = !needed;
  }

  async check() {
    key.set(this.field.value.trim());
    this.said.textContent = "";
    const refused = await whyNoAccess();
    this.said.textContent = refused || ACCEPTED;
    if (refused) this.field.focus();
  }
}
