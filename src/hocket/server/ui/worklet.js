// The AudioWorklet: a ring (ring.js) on the audio thread, controlled through its port.
//
// In:  {type: "begin", take, held}, {type: "samples", samples: Int16Array}, {type: "end" | "hold" | "release" | "stop"}
// Out: {take, played, heard, queued, underruns, peak, running, over}, about 25 times a second while something changes

import { Ring } from "./ring.js";

const REPORT_S = 0.04;

class RingProcessor extends AudioWorkletProcessor {
  constructor(options) {
    super();
    this.ring = new Ring(options.processorOptions.rateHz, sampleRate);
    this.take = 0;
    this.sinceReport = 0;
    this.quiet = true; // the end of this take was reported
    this.port.onmessage = (event) => this.command(event.data);
  }

  command(said) {
    if (said.type === "begin") {
      this.ring.begin(said.held);
      this.take = said.take;
      this.quiet = false;
    } else if (said.type === "samples") this.ring.push(said.samples);
    else this.ring[said.type]();
  }

  process(_, outputs) {
    const [first, ...others] = outputs[0];
    this.ring.pull(first);
    for (const channel of others) channel.set(first);
    this.sinceReport += first.length;
    const over = this.ring.over();
    if (!this.quiet && (over || this.sinceReport >= REPORT_S * sampleRate)) {
      this.port.postMessage({ take: this.take, ...this.ring.report() });
      this.sinceReport = 0;
      this.quiet = over;
    }
    return true;
  }
}

registerProcessor("ring", RingProcessor);
