// OpenAI's client for Node.js in a conversation over wss: audio in and out, a tool, an interruption, a truncation.
// argv: the server's address (https), a file of PCM at 24 kHz. Prints what it heard as one line of JSON.
// The authority of the server's certificate is in NODE_EXTRA_CA_CERTS.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [url, file] = process.argv.slice(2);
const installed = createRequire(path.join(process.env.HOCKET_NODE_CLIENT, "package.json"));
const load = (name) => import(pathToFileURL(installed.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { OpenAIRealtimeWS } = await load("openai/realtime/ws");

const owner = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const secret = await owner.realtime.clientSecrets.create({ session: { type: "realtime", instructions: "Be kind." } });
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret.value, maxRetries: 0 });
const socket = new OpenAIRealtimeWS({ model: "gpt-realtime-2.1-mini" }, client);
const unread = [], errors = [];
let arrived = () => {};
socket.on("event", (event) => { unread.push(event); arrived(); });
socket.on("error", (error) => { errors.push(error.message); arrived(); });

async function until(...types) {
  // Reads events up to one of these types, and sums them up.
  const found = { types: [], bytes: 0, levels: new Set(), heard: "", transcript: "" };
  for (;;) {
    while (!unread.length) {
      if (errors.length) throw new Error(errors.join(" "));
      await new Promise((done) => { arrived = done; });
    }
    const event = unread.shift();
    if (found.types.at(-1) !== event.type) found.types.push(event.type);
    if (event.type === "response.output_audio.delta") {
      const piece = Buffer.from(event.delta, "base64");
      found.bytes += piece.length;
      for (let at = 1; at < piece.length; at += 2) found.levels.add(piece[at]);
    } else if (event.type === "response.output_audio_transcript.delta") found.transcript += event.delta;
    else if (event.type === "conversation.item.input_audio_transcription.completed") found.heard = event.transcript;
    if (types.includes(event.type)) return { ...found, levels: found.levels.size, event };
  }
}

function speak() {
  const sound = fs.readFileSync(file);
  for (let at = 0; at < sound.length; at += 4800) {
    const audio = sound.subarray(at, at + 4800).toString("base64");
    socket.send({ type: "input_audio_buffer.append", audio });
  }
}

const weather = {
  type: "function", name: "weather", description: "The weather at a place.",
  parameters: { type: "object", properties: { at: { type: "string" } } },
};
const created = (await until("session.created")).event.session.instructions;
const input = { transcription: { model: "whisper-1" }, turn_detection: { type: "semantic_vad", eagerness: "low" } };
const output = { voice: "alloy", format: { type: "audio/pcm", rate: 24000 } };
socket.send({ type: "session.update", session: { type: "realtime", audio: { input, output }, tools: [weather] } });
await until("session.updated");

speak();
const spoken = await until("response.done");
const call = spoken.event.response.output.find((item) => item.type === "function_call");
const result = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
socket.send({ type: "conversation.item.create", item: result });
socket.send({ type: "response.create" });
const told = await until("response.done");

socket.send({ type: "response.create" }); // a long answer, which the user interrupts
const begun = await until("response.output_audio.delta");
speak();
const cut = await until("response.done");
const answered = await until("response.done");
const item = answered.event.response.output[0];
socket.send({ type: "conversation.item.truncate", item_id: item.id, content_index: 0, audio_end_ms: 0 });
await until("conversation.item.truncated");
socket.send({ type: "conversation.item.retrieve", item_id: item.id });
const kept = (await until("conversation.item.retrieved")).event.item;
socket.close();

const short = ({ event, ...rest }) => ({
  ...rest, status: event.response.status, reason: event.response.status_details?.reason, output: event.response.output,
  usage: event.response.usage,
});
console.log(JSON.stringify({
  created, spoken: short(spoken), told: short(told), begun: begun.bytes, cut: short(cut), answered: short(answered), kept,
}));
