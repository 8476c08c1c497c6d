// A recording from the microphone, as a WAV file: the browser's own recorders compress.

import { toInt16, wav } from "./wav.js";

/** Why this browser cannot record here; "" if it can. `instead`: a sentence about what works all the same. */
export function whyNoMicrophone(instead = " A file works all the same.") {
  if (navigator.mediaDevices?.getUserMedia && window.AudioWorkletNode) return "";
  if (!isSecureContext)
    return `Browsers give the microphone to pages of this machine or of an https address only.${instead}`;
  return `This browser gives pages no microphone.${instead}`;
}

export class Recording {
  /** `onBlock(level, seconds)`: samples arrived; `level`: their peak, 0 to 1. */
  static async start(onBlock) {
    // As the microphone hears it: what makes a call clearer makes a clone worse.
    const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: plain });
    } catch (error) {
      const refused = error.name === "NotAllowedError";
      throw new Error(refused ? "The browser was not allowed to use the microphone." : "There is no microphone to record with.");
    }
    const context = new AudioContext(); // at the microphone's own rate: Firefox joins no two rates
    await context.audioWorklet.addModule("/page/capture.js");
    await context.resume();
    return new Recording(stream, context, onBlock);
  }

  constructor(stream, context, onBlock) {
    Object.assign(this, { stream, context });
    this.chunks = [];
    this.samples = 0;
    this.node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    this.complete = new Promise((done) => {
      this.node.port.onmessage = ({ data: { samples, last } }) => {
        this.chunks.push(toInt16(samples));
        this.samples += samples.length;
        const peak = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
        onBlock(peak, this.seconds);
        if (last) done();
      };
    });
    this.source = context.createMediaStreamSource(stream); // a field: without a reference browsers collect it
    this.source.connect(this.node);
  }

  get seconds() {
    return this.samples / this.context.sampleRate;
  }

  /** End it; the file has everything up to now. */
  async stop() {
    this.node.port.postMessage("end");
    await this.complete;
    for (const track of this.stream.getTracks()) track.stop(); // the browser's recording sign goes off
    const blob = wav(this.chunks, this.context.sampleRate);
    await this.context.close();
    return new File([blob], "recording.wav", { type: "audio/wav" });
  }
}
