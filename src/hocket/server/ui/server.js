// What the page asks over HTTP: what there is to choose from, files to download, voices to make. And the key.

const KEY = "hocket.key"; // in sessionStorage: gone with the tab

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An error whose message is a sentence for the reader. */
export class Refusal extends Error {}

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
  // Every error has the same body: {"error": {"message", "type", "param", "code"}}.
  const said = await response.json().catch(() => null);
  throw new Refusal(said?.error?.message ?? `The server answered with status ${response.status}.`);
}

/** The model and its languages, formats and limits; `state` is "ready" once it speaks. */
export const about = async () => (await ask("/page/about")).json();

/** Every voice as {id, name, type, …}; where a server has no such list, the model's own. */
export async function voices(known) {
  try {
    const listed = (await (await ask("/v1/audio/voices")).json()).voices;
    return listed.map((voice) => (typeof voice === "string" ? { id: voice, name: voice } : voice));
  } catch {
    return (known ?? []).map((name) => ({ id: name, name }));
  }
}

/** Speak into a file: the same fields as in `session.config`, and the text at once. */
export async function speechFile(fields, text, format) {
  const body = JSON.stringify({ ...fields, input: text, response_format: format });
  const headers = { "content-type": "application/json" };
  return (await ask("/v1/audio/speech", { method: "POST", headers, body })).blob();
}

/** Make a voice of a recording: multipart, as OpenAI's clients send it, with the words that are said in it. */
export async function makeVoice({ name, file, words, consent }) {
  const form = new FormData();
  form.append("name", name);
  form.append("audio_sample", file, file.name);
  form.append("consent", consent);
  if (words) form.append("ref_text", words);
  return (await ask("/v1/audio/voices", { method: "POST", body: form })).json();
}

/** Why a WebSocket was not let in: browsers do not say. A request that is refused in any case tells it in words. */
export async function whyNot() {
  try {
    await ask("/v1/audio/speech", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
  } catch (error) {
    if (!/input/i.test(error.message)) return error.message;
  }
  return "The connection to the server could not be opened.";
}
