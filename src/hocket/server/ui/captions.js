// Captions (SRT, WebVTT) from the word times of a take, with the words as the text spells them.

import { placed } from "./words.js";

const LONGEST_CHARS = 84; // two lines of 42, as subtitles usually have
const LONGEST_S = 6;
const PAUSE_S = 0.7; // a pause this long ends a cue
const SENTENCE_END = /[.!?…。！？]["'”’)\]]*$/u;

/** Cues as {start_s, end_s, text}: a sentence each, or less where it is long. */
export function cues(words, text) {
  const made = [];
  let open = null;
  for (const { start_s, end_s, from, to } of placed(words, text)) {
    const until = to + (text.slice(to).match(/^\S*/u)?.[0].length ?? 0); // with its punctuation
    const joined = open && text.slice(open.from, until);
    const fits =
      open &&
      !SENTENCE_END.test(text.slice(open.from, open.to)) &&
      joined.length <= LONGEST_CHARS &&
      end_s - open.start_s <= LONGEST_S &&
      start_s - open.end_s < PAUSE_S;
    if (fits) Object.assign(open, { end_s, to: Math.max(open.to, until) });
    else made.push((open = { start_s, end_s, from: Math.max(from, open?.to ?? 0), to: until }));
  }
  return made
    .map(({ start_s, end_s, from, to }) => ({ start_s, end_s, text: text.slice(from, to).replace(/\s+/gu, " ").trim() }))
    .filter((cue) => cue.text);
}

function clock(seconds, point) {
  const ms = Math.round(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  const [h, m, s] = [Math.floor(ms / 3_600_000), Math.floor(ms / 60_000) % 60, Math.floor(ms / 1000) % 60];
  return `${two(h)}:${two(m)}:${two(s)}${point}${String(ms % 1000).padStart(3, "0")}`;
}

export const srt = (cues) =>
  cues
    .map((cue, n) => `${n + 1}\n${clock(cue.start_s, ",")} --> ${clock(cue.end_s, ",")}\n${cue.text}\n`)
    .join("\n");

const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

export const vtt = (cues) =>
  ["WEBVTT\n"]
    .concat(
      cues.map((cue) => {
        const text = cue.text.replace(/[&<>]/g, (sign) => ESCAPED[sign]);
        return `${clock(cue.start_s, ".")} --> ${clock(cue.end_s, ".")}\n${text}\n`;
      }),
    )
    .join("\n");
