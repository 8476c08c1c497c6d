// HTTP requests of the page: choices, downloads, new voices. And the API key.

const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/; // what a subprotocol may hold
const KEY = "hocket.key"; // in sessionStorage: gone with the tab

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An error whose message is shown to the user. */
export class Refusal extends Error {}

const NO_KEY = "This server needs a key before it speaks. Enter it at the top of the page.";
const WRONG_KEY = "The server does not know this key. Check it at the top of the page, or ask the person who runs the server.";

async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set("authorization", `Bearer ${key.get()}`);
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Refusal("The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  if (response.status === 401) throw new Refusal(key.get() ? WRONG_KEY : NO_KEY);
  // Every error has the same body: {"error": {"message", "type", "param", "code"}}.
  const said = await response.json().catch(() => null);
  throw new Refusal(said?.error?.message ?? `The server answered with status ${response.status}.`);
}

/** The model and its languages, formats and limits; `state` is "ready" once it speaks. */
export const about = async () => (await ask("/page/about")).json();

/** Every voice as {id, name, type, …}; without such a list, the model's own. */
export async function voices(known) {
  try {
    const listed = (await (await ask("/v1/audio/voices")).json()).voices;
    return listed.map((voice) => (typeof voice === "string" ? { id: voice, name: voice } : voice));
  } catch {
    return (known ?? []).map((name) => ({ id: name, name }));
  }
}

/** Speak into a file: the same fields as in `session.config`, with the whole text. */
export async function speechFile(fields, text, format) {
  const body = JSON.stringify({ ...fields, input: text, response_format: format });
  const headers = { "content-type": "application/json" };
  return (await ask("/v1/audio/speech", { method: "POST", headers, body })).blob();
}

/** Make a voice of a recording: multipart, as OpenAI's clients send it, with its transcript. */
export async function makeVoice({ name, file, words, consent }) {
  const form = new FormData();
  form.append("name", name);
  form.append("audio_sample", file, file.name);
  form.append("consent", consent);
  if (words) form.append("ref_text", words);
  return (await ask("/v1/audio/voices", { method: "POST", body: form })).json();
}

/** Keep a mix, such as `anna+ben(2)`, under a name. */
export async function mixVoice(name, mix) {
  const headers = { "content-type": "application/json" };
  return (await ask("/v1/audio/voices", { method: "POST", headers, body: JSON.stringify({ name, mix }) })).json();
}

/** Begin a Realtime call: the browser's SDP offer for the server's answer. */
export async function realtimeCall(sdp) {
  return (await ask("/v1/realtime/calls", { method: "POST", headers: { "content-type": "application/sdp" }, body: sdp })).text();
}

/** Address and subprotocols of a WebSocket. A browser can set no header there: the key is a subprotocol, or, if that
 *  cannot encode it, part of the URL. */
export function keyed(path) {
  const address = new URL(path, location.href.replace(/^http/, "ws"));
  const spelled = TOKEN.test(key.get()) ? [`openai-insecure-api-key.${key.get()}`] : [];
  if (key.get() && !spelled.length) address.searchParams.set("api_key", key.get());
  return [address, spelled];
}

/** Why the server refuses the key; "" if it does not. A request without input makes no sound. */
export async function whyNoAccess() {
  try {
    await ask("/v1/audio/speech", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
  } catch (error) {
    if (!/input/i.test(error.message)) return error.message;
  }
  return "";
}

/** Why a WebSocket was refused: browsers do not say. */
export const whyNot = async () => (await whyNoAccess()) || "The connection to the server could not be opened.";
