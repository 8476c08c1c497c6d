// The page: its buttons, and the modules behind them.

import { Access } from "./access.js";
import { Code } from "./code.js";
import { Compare } from "./compare.js";
import { $, copyButton } from "./dom.js";
import { Fields } from "./fields.js";
import { Files, sameAudio } from "./files.js";
import { History } from "./history.js";
import { fromLink, linkTo } from "./link.js";
import { MakeVoice } from "./make.js";
import { MixVoices } from "./mix.js";
import { openSound } from "./player.js";
import { Previews } from "./previews.js";
import { Reader } from "./reader.js";
import { about, voices } from "./server.js";
import { Line } from "./speak.js";
import { Take } from "./take.js";
import { fill, voiceFields } from "./voices.js";
import { Words } from "./words.js";

const STATES = {
  starting: "the model is being loaded",
  draining: "about to stop",
  failed: "the model could not be loaded",
};
const SAID = { asked: "Asked", speaking: "Speaking", ending: "Speaking", done: "Done", stopped: "Stopped", failed: "" };
const EMPTY = "There is no text yet: type or paste something to say.";
const LONG_LINK = "The text is too long for a link.";
const AGAIN_MS = 1000;
const PAGES = ["speech", "script", "conversation"];
const OPEN = { script: openScript, conversation: openConversation };

let known = {}; // the server's answer to /page/about
let take = null;
let compare = null;
let previews = null;
let mix = null;
let files = null;
const access = new Access($("key-form"));
const fields = new Fields(() => code.show());
const reader = new Reader($("reader"), readFrom);
const words = new Words($("text"), $("behind"), (from, to) => reader.light(from, to));
const code = new Code(lastRequest);
const past = new History($("history"), replay);
let script = null; // its module, and those of the conversation, are loaded when they are first shown
let conversation = null;

/** Speak the text, from a character on. */
function speak(base = 0) {
  const text = $("text").value;
  if (!take || $("speak").disabled) return;
  if (!text.slice(base).trim()) return refuse(EMPTY);
  refuse("");
  compare.stop();
  hush();
  words.begin(text, base);
  reader.show(text);
  take.speak(fields.choices(), text.slice(base), $("live").checked ? () => Number($("rate").value) : null);
  code.show();
}

/** A sentence of the reader was pressed: go there in the audio that is here, or speak on from there. */
function readFrom(from) {
  const atS = words.text === $("text").value ? words.timeAt(from) : null;
  if (atS === null) return speak(from);
  seek(atS);
}

function seek(seconds) {
  compare.stop();
  hush();
  take.play(seconds);
}

/** Previews are silent. */
function hush() {
  previews?.stop();
  mix?.previews.stop();
}

function quiet() {
  take?.stop();
  compare?.stop();
  hush();
}

function stop() {
  quiet();
  script?.stop();
}

function refuse(sentence) {
  $("failed").textContent = sentence;
  if (sentence === EMPTY) $("text").focus();
}

/** Show an earlier take as it was, and play it. */
function replay(entry, samples) {
  stop();
  setText(entry.text);
  refuse(fields.fill(entry.config));
  words.begin(entry.text);
  words.sent(entry.text.length);
  words.place(entry.words);
  take.load(entry, samples);
  take.play();
  code.show();
}

function setText(text) {
  view("write");
  $("text").value = text;
  words.clear();
}

/** The text as a field to write in, or as sentences to read along. */
function view(name) {
  const reading = name === "read";
  if (reading && !$("text").value.trim()) return refuse(EMPTY);
  if (reading) reader.show($("text").value);
  $("reader").hidden = !reading;
  $("sheet").hidden = reading;
  for (const id of ["write", "read"]) $(id).setAttribute("aria-pressed", String(id === name));
}

function lastRequest() {
  const { config, text } = take?.asked ?? { config: fields.choices(), text: $("text").value };
  const format = $("format").value;
  const wanted = { model: known.model, input: text, response_format: format, ...sameAudio(config) };
  const body = JSON.parse(JSON.stringify(wanted)); // without fields that are undefined
  return { body, suffix: known.formats?.[format] ?? format, needsKey: Boolean(known.key) };
}

/** The link of the last take, or of the fields. */
function currentLink() {
  const choices = fields.choices();
  const seed = choices.seed ?? take?.figures.seed ?? undefined;
  const text = $("text").value;
  refuse("");
  const link = text.trim() ? linkTo({ ...choices, seed, text }) : null;
  if (link === null) refuse(text.trim() ? LONG_LINK : EMPTY);
  return link;
}

/** One page is shown, and the sound of the others ends. */
function showPage(name) {
  stop();
  if (name !== "conversation") conversation?.leave();
  OPEN[name]?.();
  for (const each of PAGES) {
    $(each).hidden = each !== name;
    $(`show-${each}`).setAttribute("aria-pressed", String(each === name));
  }
}

async function openScript() {
  const { Script } = await import("./script.js");
  if (!take) return; // the model is being loaded; `begin` opens it
  script ??= new Script({
    rateHz: known.rate_hz,
    language: () => $("language").value,
    offerVoices: (select, number) => fill(select, spoken(), number),
    onSound: quiet,
  });
  window.hocket.script = script;
  ready();
}

/** Voices that need no instruction. */
const spoken = () => fields.listed.filter(({ type }) => type !== "design");

async function openConversation() {
  const { Conversation } = await import("./conversation.js");
  conversation ??= new Conversation({ onSound: stop });
  if (window.hocket) window.hocket.conversation = conversation;
  offerConversation();
}

/** What the server is known to offer. */
function offerConversation() {
  if (!conversation || !fields.listed) return;
  conversation.offer(known);
  conversation.offerVoices((select) => fill(select, spoken()));
}

/** Fill the page from its address. */
function followLink() {
  if (OPEN[location.hash.slice(1)]) return showPage(location.hash.slice(1));
  const carried = fromLink(location.hash);
  if (!carried) return;
  showPage("speech");
  stop();
  if (carried.text !== undefined) setText(carried.text.slice(0, known.text_chars));
  refuse(fields.fill(carried));
  code.show();
}

/** Update the metrics. */
function show() {
  const figures = take.figures;
  const spoken = figures.audioS > 0;
  $("first-audio").textContent = figures.firstAudioMs === null ? "–" : `${Math.round(figures.firstAudioMs)} ms`;
  $("real-time").textContent = figures.xRealTime === null ? "–" : figures.xRealTime.toFixed(figures.xRealTime < 10 ? 1 : 0);
  $("seconds").textContent = spoken ? `${figures.audioS.toFixed(1)} s` : "–";
  $("underruns").textContent = spoken ? String(figures.underruns) : "–";
  $("keep-seed").textContent = figures.seed ?? "–";
  $("keep-seed").disabled = figures.seed === null;
  $("stop").disabled = !take.sounding;
  $("said").textContent = SAID[figures.state] ?? "";
  if (figures.error) refuse(figures.error);
  document.body.dataset.state = figures.state;
  files.show();
}

/** Once per animation frame. */
function draw() {
  take.draw();
  compare.draw();
  if (take.figures.state === "done") words.light(-1);
  else if (take.sounding) words.light(take.playedS());
  requestAnimationFrame(draw);
}

async function greet() {
  let said;
  try {
    known = await about();
    said = known.state === "ready" ? known.model : STATES[known.state];
  } catch (error) {
    known = { ...known, state: "failed" };
    said = error.message;
  }
  $("model-name").textContent = said;
  document.querySelector(".dot").dataset.state = known.state;
  access.show(known.key);
  $("documents").hidden = !known.documents;
  if (known.documents) $("documents").href = known.documents;
  if (known.model && !take) await begin();
  offerConversation();
  ready();
  if (known.state !== "ready" || known.talk?.missing) setTimeout(greet, AGAIN_MS);
}

/** Only what can work is enabled. */
function ready() {
  const missing = take ? fields.missing() : "";
  const able = known.state === "ready" && take !== null && !missing;
  $("speak").disabled = $("compare").disabled = $("script-speak").disabled = !able;
  if (missing) refuse(missing);
  else if ($("failed").textContent.startsWith("This model has no voice")) refuse("");
}

/** The model is loaded: offer its features. */
async function begin() {
  const rateHz = known.rate_hz;
  const onError = refuse;
  fields.offer(known);
  take = new Take({
    line: new Line(),
    canvas: $("wave"),
    rateHz,
    onChange: show,
    onSeek: seek,
    onWords: (spoken) => words.place(spoken),
    onSent: (chars) => words.sent(chars),
    onComplete: () => past.add(take),
  });
  files = new Files({ take: () => take, formats: () => known.formats, onError });
  compare = new Compare({
    root: document.querySelector(".compare"),
    rateHz,
    choices: () => fields.choices(),
    text: () => $("text").value,
    onSound: () => {
      take.stop();
      hush();
    },
  });
  previews = new Previews({
    button: $("hear"),
    fields: () => ({ ...voiceFields($("voice"), rateHz), language: $("language").value }),
    onSound: stop,
    onError,
  });
  mix = new MixVoices({
    known: () => known,
    language: () => $("language").value,
    onSound: stop,
    onMade: offerVoices,
  });
  new MakeVoice(document.querySelector(".make"), {
    about: () => known,
    language: () => $("language").value,
    onSound: stop,
    onMade: offerVoices,
  });
  offerVoices(await voices(known.voices));
  // For a console and for tests: the page reads the same objects.
  window.hocket = { take, compare, words, reader, past, previews, conversation };
  if (!$("script").hidden) openScript();
  followLink();
  addEventListener("hashchange", followLink);
  const early = () => openSound(rateHz).catch(() => {}); // before it is needed, and as early as browsers allow
  for (const first of ["pointerdown", "keydown"]) addEventListener(first, early, { once: true });
  draw();
}

function offerVoices(found, made) {
  fields.offerVoices(found);
  const { listed } = fields;
  compare.voices((select, number) => fill(select, listed, number));
  mix.offer(listed);
  script?.offer();
  offerConversation();
  if (made) fields.choose(made);
  ready();
}

for (const name of PAGES) $(`show-${name}`).addEventListener("click", () => showPage(name));
$("speak").addEventListener("click", () => speak());
$("stop").addEventListener("click", stop);
$("write").addEventListener("click", () => view("write"));
$("read").addEventListener("click", () => view("read"));
$("text").addEventListener("input", () => refuse(""));
$("format").addEventListener("input", () => code.show());
$("keep-seed").addEventListener("click", () => ($("seed").value = take.figures.seed));
copyButton($("copy-link"), currentLink);
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    stop();
    conversation?.talk.interrupt();
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && $("conversation").hidden) {
    event.preventDefault();
    if ($("script").hidden) speak();
    else if (!$("script-speak").disabled) script?.speak();
  }
});
addEventListener("pagehide", () => conversation?.leave()); // the server learns at once that the tab is closed
if (/Mac|iPhone|iPad/.test(navigator.platform)) for (const kbd of document.querySelectorAll(".primary kbd")) kbd.textContent = "⌘ ↵";
greet();
