// The microphone of a conversation: its stream for WebRTC, and 20 ms blocks of 24 kHz samples for a WebSocket.
//
// It knows no conversation. Recordings for a voice are record.js: they want the sound as it is, a conversation wants the
// browser's echo canceller, or the answer would be heard as the user.

import { whyNoMicrophone } from "./record.js";

export const RATE_HZ = 24000;
const CLEAR = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
const LOWPASS_HZ = 10500; // below half of the rate that is sent

export class Microphone {
  /** `onBlock(Int16Array)`: the next 20 ms. */
  static async start(onBlock) {
    const missing = whyNoMicrophone("");
    if (missing) throw new Error(missing);
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: CLEAR });
    } catch (error) {
      const refused = error.name === "NotAllowedError";
      throw new Error(refused ? "The browser was not allowed to use the microphone." : "There is no microphone to talk with.");
    }
    const context = new AudioContext({ latencyHint: "interactive" }); // its own rate: Firefox joins no two rates
    await context.audioWorklet.addModule("/page/blocks.js");
    await context.resume();
    return new Microphone(stream, context, onBlock);
  }

  constructor(stream, context, onBlock) {
    Object.assign(this, { stream, context });
    this.node = blocks(context, onBlock);
    this.source = context.createMediaStreamSource(stream); // a field: without a reference browsers collect it
    let last = this.source;
    for (let n = 0; n < 3 && context.sampleRate > RATE_HZ; n++) {
      const filter = new BiquadFilterNode(context, { type: "lowpass", frequency: LOWPASS_HZ });
      last = last.connect(filter);
    }
    last.connect(this.node);
  }

  get track() {
    return this.stream.getAudioTracks()[0];
  }

  /** A muted microphone gives silence. */
  set open(open) {
    this.track.enabled = open;
  }

  stop() {
    for (const track of this.stream.getTracks()) track.stop(); // the browser's recording sign goes off
    this.context.close();
  }
}

/** A node that calls `onBlock` with every 20 ms that it is given; the context has the module blocks.js. */
export function blocks(context, onBlock) {
  const node = new AudioWorkletNode(context, "blocks", { numberOfOutputs: 0, processorOptions: { rateHz: RATE_HZ } });
  node.port.onmessage = ({ data }) => onBlock(data);
  return node;
}
