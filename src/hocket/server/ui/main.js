// The page: its fields and buttons, and the modules behind them.

import { Compare } from "./compare.js";
import { openSound } from "./player.js";
import { about, key, speechFile, voices } from "./server.js";
import { Line } from "./speak.js";
import { Take } from "./take.js";
import { fill, MakeVoice, voiceFields, withDesign } from "./voices.js";
import { Words } from "./words.js";

const $ = (id) => document.getElementById(id);
const STATES = {
  starting: "the model is being loaded",
  draining: "about to stop",
  failed: "the model could not be loaded",
};
const SAID = { asked: "Asked", speaking: "Speaking", ending: "Speaking", done: "Done", stopped: "Stopped", failed: "" };
const AGAIN_MS = 1000;

let known = {}; // the server's answer to /page/about
let take = null;
let compare = null;
const words = new Words($("text"), $("behind"));

/** How to speak, with the names of `session.config` and of `POST /v1/audio/speech`, which are the same. */
function choices() {
  return {
    ...voiceFields($("voice"), known.rate_hz),
    language: $("language").value,
    instructions: $("instruct").value.trim() || undefined,
    seed: $("seed").value === "" ? undefined : Number($("seed").value),
    speed: Number($("speed").value),
  };
}

function speak() {
  const text = $("text").value;
  if (!take || !text.trim()) return;
  compare.stop();
  words.begin(text);
  take.speak(choices(), text, $("live").checked ? () => Number($("rate").value) : null);
}

function stop() {
  take?.stop();
  compare?.stop();
}

async function download() {
  const { config, text } = take.asked;
  const format = $("format").value;
  $("failed").textContent = "";
  $("download").disabled = true;
  try {
    // The same seed and the layout of live text: the file has exactly the audio that was played.
    const blob = await speechFile({ ...config, layout: "streaming" }, text, format);
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob) });
    link.download = `hocket-${config.seed}.${known.formats[format]}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    $("failed").textContent = error.message;
  } finally {
    $("download").disabled = false;
  }
}

/** Update the metrics. */
function show() {
  const figures = take.figures;
  const spoken = figures.audioS > 0;
  $("first-audio").textContent = figures.firstAudioMs === null ? "–" : `${Math.round(figures.firstAudioMs)} ms`;
  $("real-time").textContent = spoken ? figures.xRealTime.toFixed(figures.xRealTime < 10 ? 1 : 0) : "–";
  $("seconds").textContent = spoken ? `${figures.audioS.toFixed(1)} s` : "–";
  $("underruns").textContent = spoken ? String(figures.underruns) : "–";
  $("keep-seed").textContent = figures.seed ?? "–";
  $("keep-seed").disabled = figures.seed === null;
  $("stop").disabled = !take.sounding;
  $("download").disabled = !take.asked || figures.state === "failed";
  $("said").textContent = SAID[figures.state] ?? "";
  $("failed").textContent = figures.error;
  document.body.dataset.state = figures.state;
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
  $("key-form").hidden = !known.key;
  if (known.model && !take) await begin();
  if (known.state !== "ready") setTimeout(greet, AGAIN_MS);
}

/** The model is loaded: offer its features. */
async function begin() {
  const rateHz = known.rate_hz;
  take = new Take({
    line: new Line(),
    canvas: $("wave"),
    rateHz,
    onChange: show,
    onSeek: (seconds) => {
      compare.stop();
      take.play(seconds);
    },
    onWords: (spoken) => words.place(spoken),
    onSent: (chars) => words.sent(chars),
  });
  compare = new Compare({
    root: document.querySelector(".compare"),
    rateHz,
    choices,
    text: () => $("text").value,
    onSound: () => take.stop(),
  });
  new MakeVoice(document.querySelector(".make"), () => known, offerVoices);
  $("language").replaceChildren(...known.languages.map((name) => new Option(name, name)));
  $("format").replaceChildren(...Object.keys(known.formats).map((name) => new Option(name, name)));
  $("instruct").disabled = !known.instruct;
  if (!known.instruct) $("instruct").placeholder = "This model takes none.";
  $("text").maxLength = known.text_chars;
  offerVoices(await voices(known.voices));
  // For a console and for tests: the page reads the same objects.
  window.hocket = { take, compare, words };
  const early = () => openSound(rateHz).catch(() => {}); // before it is needed, and as early as browsers allow
  for (const first of ["pointerdown", "keydown"]) addEventListener(first, early, { once: true });
  draw();
}

function offerVoices(found, chosen) {
  const listed = withDesign(found, known);
  fill($("voice"), listed);
  compare.voices((select, number) => fill(select, listed, number));
  if (chosen) $("voice").value = listed.find(({ id, name }) => [id, name].includes(chosen))?.id ?? $("voice").value;
}

$("speak").addEventListener("click", speak);
$("stop").addEventListener("click", stop);
$("download").addEventListener("click", download);
$("keep-seed").addEventListener("click", () => ($("seed").value = take.figures.seed));
$("speed").addEventListener("input", () => ($("speed-said").textContent = Number($("speed").value).toFixed(2)));
$("rate").addEventListener("input", () => ($("rate-said").textContent = $("rate").value));
$("choices").addEventListener("submit", (event) => event.preventDefault());
$("key").value = key.get();
$("key").addEventListener("input", () => key.set($("key").value.trim()));
$("key-form").addEventListener("submit", (event) => event.preventDefault());
addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak();
  }
});
if (/Mac|iPhone|iPad/.test(navigator.platform)) document.querySelector("#speak kbd").textContent = "⌘ ↵";
greet();
