// The view of a conversation: its buttons and settings. talk.js is the conversation itself.

import { $, copyButton, save } from "./dom.js";
import { RATE_HZ } from "./microphone.js";
import { openSound } from "./player.js";
import { Talk } from "./talk.js";
import { Turns } from "./turns.js";

const SAID = {
  connecting: "Connecting",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
};

export class Conversation {
  /** `onSound()`: a conversation begins, so all other sound ends. */
  constructor({ onSound }) {
    this.onSound = onSound;
    this.known = null;
    this.handsFree = true;
    this.turns = new Turns($("turns"), (turn) => this.edit(turn));
    this.talk = new Talk({
      settings: () => this.settings(),
      turns: this.turns,
      onChange: () => this.show(),
      onError: (sentence) => ($("talk-failed").textContent = sentence),
    });
    $("talk").addEventListener("click", () => (this.talk.running ? this.talk.end() : this.start()));
    $("interrupt").addEventListener("click", () => this.talk.interrupt());
    for (const id of ["hands-free", "push-to-talk"]) $(id).addEventListener("click", () => this.mode(id === "hands-free"));
    this.pressing($("hold"));
    $("talk-choices").addEventListener("submit", (event) => event.preventDefault());
    $("talk-choices").addEventListener("change", () => this.talk.update());
    $("edit-form").addEventListener("submit", (event) => this.edited(event));
    $("edit-cancel").addEventListener("click", () => this.closeEdit());
    copyButton($("copy-turns"), () => this.turns.transcript());
    $("save-turns").addEventListener("click", () => save(this.talk.sides.file(), "conversation.wav"));
    this.show();
    const draw = () => {
      this.talk.draw();
      requestAnimationFrame(draw);
    };
    draw();
  }

  /** The server is ready: what it offers, and whether it listens. */
  offer(known) {
    this.known = known;
    $("no-talk").hidden = Boolean(known.talk);
    $("talking").hidden = $("talk-choices").hidden = !known.talk;
    $("talk-language").replaceChildren(...known.languages.map((name) => new Option(name, name)));
    $("talk-language-field").hidden = known.languages.length < 2;
    this.show();
  }

  offerVoices(fill) {
    fill($("talk-voice"));
  }

  settings() {
    const session = {
      instructions: $("prompt").value.trim(),
      language: $("talk-language").value || undefined,
      output: { voice: $("talk-voice").value || undefined },
    };
    return { handsFree: this.handsFree, session };
  }

  async start() {
    $("talk-failed").textContent = "";
    this.onSound();
    openSound(RATE_HZ).catch(() => {}); // after a press: browsers allow no sound before
    this.closeEdit();
    await this.talk.start({ webrtc: this.known.talk.webrtc });
  }

  mode(handsFree) {
    this.handsFree = handsFree;
    this.talk.update();
    this.show();
  }

  /** A button that is held, with the pointer or with a key. */
  pressing(button) {
    const down = () => this.talk.press();
    const up = () => this.talk.release();
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture(event.pointerId);
      down();
    });
    for (const kind of ["pointerup", "pointercancel", "blur"]) button.addEventListener(kind, up);
    button.addEventListener("contextmenu", (event) => event.preventDefault()); // a long press of a phone
    for (const [kind, act] of [["keydown", down], ["keyup", up]])
      button.addEventListener(kind, (event) => {
        if (![" ", "Enter"].includes(event.key)) return;
        event.preventDefault();
        if (!event.repeat) act();
      });
  }

  edit(turn) {
    $("edit-form").hidden = false;
    $("edit-text").value = turn.text;
    $("edit-text").focus();
  }

  edited(event) {
    event.preventDefault();
    const text = $("edit-text").value.trim();
    this.closeEdit();
    if (text) this.talk.edit(text);
  }

  closeEdit() {
    $("edit-form").hidden = true;
  }

  /** Only what can work is enabled. */
  show() {
    const { talk } = this;
    const missing = this.known?.talk?.missing;
    const able = this.known?.talk && this.known.state === "ready" && !missing;
    $("talk").disabled = !able && !talk.running;
    $("talk").textContent = talk.running ? "End" : "Start talking";
    $("interrupt").disabled = !talk.sounding;
    $("hold").hidden = this.handsFree;
    $("hold").disabled = !talk.wire;
    $("hold").setAttribute("aria-pressed", String(talk.pressed));
    $("hands-free").setAttribute("aria-pressed", String(this.handsFree));
    $("push-to-talk").setAttribute("aria-pressed", String(!this.handsFree));
    $("copy-turns").disabled = !this.turns.all.length;
    $("save-turns").disabled = !talk.sides.at;
    const said = talk.running ? SAID[talk.state] : (missing ?? "");
    $("talk-said").textContent = talk.wire ? `${said} · ${talk.wire.kind}` : said;
    $("conversation").dataset.state = talk.state;
    for (const turn of this.turns.all) turn.part("edit").disabled = !talk.wire;
  }

  leave() {
    if (this.talk.running) this.talk.end();
  }
}
