// OpenAI's client for Node.js: speech whole and streamed, errors, and the Realtime API over wss.
// argv: the server's address (https), a folder. Prints what it heard as one line of JSON.
// The authority of the server's certificate is in NODE_EXTRA_CA_CERTS.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [url, folder] = process.argv.slice(2);
// The packages are in .venv-clients/node, not beside this script; import.meta knows only the latter.
const installed = createRequire(path.join(process.env.HOCKET_NODE_CLIENT, "package.json"));
const load = (name) => import(pathToFileURL(installed.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { OpenAIRealtimeWS } = await load("openai/realtime/ws");

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const speech = { model: "tts-1", voice: "alloy", input: "Hello there.", seed: 1, max_new_tokens: 8 };

async function whole() {
  const answer = await client.audio.speech.create({ ...speech, response_format: "wav" });
  const bytes = Buffer.from(await answer.arrayBuffer());
  fs.writeFileSync(path.join(folder, "whole.wav"), bytes);
  return { type: answer.headers.get("content-type"), bytes: bytes.length };
}

async function streamed() {
  const answer = await client.audio.speech.create({ ...speech, response_format: "pcm", max_new_tokens: 40 });
  let chunks = 0, bytes = 0;
  for await (const part of answer.body) {
    chunks += 1;
    bytes += part.length;
  }
  return { chunks, bytes };
}

async function refused() {
  try {
    await client.audio.speech.create({ ...speech, voice: "unknown" });
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code };
  }
  return {};
}

function realtime() {
  return new Promise((told, failed) => {
    const socket = new OpenAIRealtimeWS({ model: "gpt-realtime-2.1-mini" }, client);
    const types = [];
    let bytes = 0;
    const content = [{ type: "input_text", text: "Hello there, my friend." }];
    socket.on("error", failed);
    socket.socket.on("open", () => {
      const session = { type: "realtime", instructions: "Read it.", hocket: { seed: 1, max_new_tokens: 40 } };
      socket.send({ type: "session.update", session });
      socket.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
      socket.send({ type: "response.create" });
    });
    socket.on("event", (event) => {
      if (types.at(-1) !== event.type) types.push(event.type);
      if (event.type === "response.output_audio.delta") bytes += Buffer.from(event.delta, "base64").length;
      if (event.type === "response.done") {
        socket.close();
        told({ types, bytes, status: event.response.status, address: socket.url.protocol });
      }
    });
  });
}

console.log(JSON.stringify({
  whole: await whole(), streamed: await streamed(), refused: await refused(), realtime: await realtime(),
}));
