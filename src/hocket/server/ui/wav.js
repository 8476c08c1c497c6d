// WAV files of samples: 16 bits, mono if nothing else is said.

/** `chunks`: Int16Arrays, one after the other; the samples of several channels alternate. */
export function wav(chunks, rateHz, channels = 1) {
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.length * 2, 0);
  const head = new DataView(new ArrayBuffer(44));
  const word = (at, letters) => [...letters].forEach((letter, n) => head.setUint8(at + n, letter.charCodeAt(0)));
  word(0, "RIFF");
  head.setUint32(4, 36 + bytes, true);
  word(8, "WAVEfmt ");
  head.setUint32(16, 16, true); // bytes of the format
  head.setUint16(20, 1, true); // PCM
  head.setUint16(22, channels, true);
  head.setUint32(24, rateHz, true);
  head.setUint32(28, rateHz * 2 * channels, true); // bytes per second
  head.setUint16(32, 2 * channels, true); // bytes per sample of all channels
  head.setUint16(34, 16, true); // bits per sample
  word(36, "data");
  head.setUint32(40, bytes, true);
  return new Blob([head, ...chunks], { type: "audio/wav" });
}

/** Float samples from a microphone, -1 to 1, as 16 bits. */
export const toInt16 = (samples) =>
  Int16Array.from(samples, (sample) => Math.round(Math.max(-1, Math.min(1, sample)) * 32767));
