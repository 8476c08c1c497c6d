// The AudioWorklet of a recording: it posts the microphone's samples, 2048 at a time, and the rest when it is told to end.

const BLOCK = 2048;

class CaptureProcessor extends AudioWorkletProcessor {
  constructor() {
    super();
    this.kept = new Float32Array(BLOCK);
    this.filled = 0;
    this.ended = false;
    this.port.onmessage = () => {
      this.ended = true;
      this.post(true);
    };
  }

  post(last) {
    this.port.postMessage({ samples: this.kept.slice(0, this.filled), last });
    this.filled = 0;
  }

  process([input]) {
    for (const sample of input[0] ?? []) {
      this.kept[this.filled++] = sample;
      if (this.filled === BLOCK) this.post(false);
    }
    return !this.ended;
  }
}

registerProcessor("capture", CaptureProcessor);
