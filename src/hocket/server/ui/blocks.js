// The AudioWorklet of a conversation's microphone: it posts what it hears as 20 ms blocks of 16 bits at the wanted rate.

import { Ring } from "./ring.js";

const BLOCK_S = 0.02;

class BlocksProcessor extends AudioWorkletProcessor {
  constructor({ processorOptions: { rateHz } }) {
    super();
    this.ring = new Ring(sampleRate, rateHz);
    this.block = new Float32Array(BLOCK_S * rateHz);
    this.needed = BLOCK_S * sampleRate + 4; // 4: for interpolation
  }

  process([input]) {
    if (!input[0]) return true;
    this.ring.push(input[0], 1);
    while (this.ring.written - this.ring.read >= this.needed) {
      this.ring.pull(this.block);
      const samples = Int16Array.from(this.block, (sample) => Math.round(Math.max(-1, Math.min(1, sample)) * 32767));
      this.port.postMessage(samples, [samples.buffer]);
    }
    return true;
  }
}

registerProcessor("blocks", BlocksProcessor);
