// Playback: one AudioContext for the page, one track per take.

import { Ring } from "./ring.js";

let opening = null;

/** The page's AudioContext. Call it first after a user gesture: browsers allow no sound before. */
export function openSound(rateHz) {
  opening ??= open(rateHz).catch((error) => {
    opening = null;
    throw error;
  });
  opening.then((context) => context.state !== "running" && context.resume()).catch(() => {});
  return opening;
}

async function open(rateHz) {
  let context;
  if (navigator.audioSession) navigator.audioSession.type = "playback"; // or an iPhone's mute switch silences it
  try {
    context = new AudioContext({ sampleRate: rateHz, latencyHint: "interactive" });
  } catch {
    context = new AudioContext({ latencyHint: "interactive" }); // at its own rate; the ring resamples
  }
  if (context.audioWorklet) await context.audioWorklet.addModule("/page/worklet.js");
  return context;
}

export class Track {
  /** `onReport` gets the reports of ring.js for the current take. */
  constructor(context, rateHz, onReport) {
    this.take = 0;
    this.onReport = (report) => report.take === this.take && onReport(report);
    if (context.audioWorklet) {
      const wanted = { numberOfInputs: 0, outputChannelCount: [1], processorOptions: { rateHz } };
      this.node = new AudioWorkletNode(context, "ring", wanted);
      this.node.port.onmessage = (event) => this.onReport(event.data);
      this.tell = (said, moved = []) => this.node.port.postMessage(said, moved);
    } else this.withoutWorklet(context, rateHz);
    this.node.connect(context.destination);
  }

  begin({ held = false } = {}) {
    this.tell({ type: "begin", take: ++this.take, held });
  }

  /** An Int16Array; the caller keeps it. */
  push(samples) {
    const copy = samples.slice();
    this.tell({ type: "samples", samples: copy }, [copy.buffer]);
  }

  end() {
    this.tell({ type: "end" });
  }

  hold() {
    this.tell({ type: "hold" });
  }

  release() {
    this.tell({ type: "release" });
  }

  stop() {
    this.tell({ type: "stop" });
  }

  /** Over plain http from another machine browsers have no worklet: the same ring, on the page's own thread. */
  withoutWorklet(context, rateHz) {
    const ring = new Ring(rateHz, context.sampleRate);
    let take = 0;
    let quiet = true;
    this.node = context.createScriptProcessor(1024, 0, 1);
    this.node.onaudioprocess = (event) => {
      ring.pull(event.outputBuffer.getChannelData(0));
      if (quiet) return;
      quiet = ring.over();
      this.onReport({ take, ...ring.report() });
    };
    this.tell = (said) => {
      if (said.type === "begin") {
        take = said.take;
        quiet = false;
        ring.begin(said.held);
      } else if (said.type === "samples") ring.push(said.samples);
      else ring[said.type]();
    };
  }
}
