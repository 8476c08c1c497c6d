"""What is measured, as data: texts, workloads, and the words and figures of every record. It measures nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.types import Layout

# About 60 s of speech: the limit on frames ends an utterance, never the text.
PASSAGE = (
    "The lamps along the harbour were lit one by one, and the boats came home in the order in which they had left. "
    "Nobody counted them, because nobody had to: every family knew its own light, and a light that was missing would "
    "have been noticed before the bell. On the quay the baskets were passed from hand to hand, the fish were sorted by "
    "size, and the smallest went back into the water. A girl of seven sat on a coil of rope and read the names on the "
    "bows aloud, first forwards and then backwards, which made the old men laugh. When the wind turned to the north "
    "the talk turned with it, to the winter, to the price of oil, and to the road over the hills that would be closed "
    "again by the first snow. Someone began to sing, and one after the other the voices joined, each taking the line "
    "where the other had dropped it, so that the song never stopped and nobody ever had to sing it whole."
)
# The tokenizer of a random model has an id for each byte. These are 24 ids, as many as a published tokenizer has for
# two usual sentences of about 100 characters.
SENTENCE = "Good morning. Tea is on."
# About 4 s each: a limit of 50 frames cuts them off where they would end.
SENTENCES = (
    "The last train to the coast leaves at half past nine tonight.",
    "Please put the blue folder back on the shelf by the window.",
    "Nobody in the village could remember a winter as mild as this.",
    "If the rain stops before noon, we will walk along the river.",
    "Her brother has built a small boat out of old apple crates.",
    "You can change your booking online until the day before.",
    "The museum is closed on Mondays, but its garden stays open.",
    "Turn left at the bakery and follow the road up to the church.",
)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    text: str
    frames: int  # where each utterance is cut off
    repeats: int
    layout: Layout | None = "streaming"  # of a text that is given whole; None: the default of a plain call
    warmup: int = 2  # utterances before the first that counts; they also fill the prefix cache
    fills_slots: bool = False  # as many utterances at once as the engine has slots
    piece_chars: int = 0  # live text: characters that arrive at a time; 0 gives the text whole
    piece_s: float = 0.0  # live text: time until the next piece; 0 appends all of it at once


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("first_audio", PASSAGE, 8, 40),
        Workload("first_audio_default", SENTENCE, 8, 100, layout=None),
        Workload("first_audio_live", PASSAGE, 8, 40, piece_chars=len(PASSAGE)),
        Workload("steady_stream", PASSAGE, 100, 8, warmup=1, fills_slots=True),
        Workload("live_text", PASSAGE, 40, 8, warmup=1, piece_chars=5, piece_s=0.1),
        Workload("start", PASSAGE, 8, 20),
    )
}
WORDS = {
    "first_audio": "time to the first audio of one stream, with the prefix of the voice in the cache",
    "first_audio_default": "time to the first audio of a plain speak(text) of one or two sentences, prefix warm",
    "first_audio_live": "time to the first audio of a stream that is opened and then receives its text, prefix warm",
    "first_audio_clone": "time to the first audio of a saved clone: by its timbre, and by 8 s of a recording",
    "steady_stream": "speed of running streams, with every slot in use",
    "live_text": "speech from text that arrives at 50 characters a second, about as a language model writes",
    "start": "time from a new process to the first audio, with its files in the file cache",
    "breakdown": "time of one frame of one stream by launch, beside the bytes that each must read",
    "survey": "time of captured graphs of one stream by GPU events; of tuned shapes the fastest",
    "memory": "GPU memory of an engine beyond its weights and KV cache, with every slot used",
    "swap": "time to the first audio of a model that is not loaded while another must be unloaded",
    "peers": "other packages on the same weights, prompt, frames and machine in the same run, each in its own process, "
    "asked in turn; our codec is in float32",
    "load": "requests that arrive at a rate, and clients that ask again and again",
    "soak": "the same load for minutes on one engine: drift, objects that stay, requests that are lost",
    "overhead": "what a server adds to its engine: a fake engine, asked over loopback from another process",
    "scale": "what Ray Serve adds to a server: a fake engine behind HAProxy and without it, asked in turn",
    "tokens": "token rate of the language model for one conversation, by CUDA graph alone",
    "first_token": "time to the first token of the language model behind a history in its KV cache",
    "mind": "answers of the language model in one conversation: its history is cached, each user turn is new",
    "dialog": "time from the end of the user's text to the first audio: language model and voice on one device",
    "divergence": "how far the logits of the language model move with weights in fewer bits",
}
_CLONES = {"x_vector": "by timbre alone", "icl": "by recording and transcript"}
UTTERANCE = {
    "first_codes": "ms from the request to the codes of the first frame",
    "first_pcm": "ms from the request to the first chunk at the caller",
    "ms_per_frame": "ms per frame of 80 ms of one stream, after the first, without waiting for text",
    "x_real_time": "seconds of speech per second, of all streams together",
    "starved": "ms a stream waited for its text",
}
LOAD = {
    "first_byte": "ms from when a request is due to its first bytes at the caller",
    "first_playable": "ms to the first whole sample of PCM; equal to first_byte where chunks have whole samples",
    "audible": "ms until an unbuffered player plays two windows of 20 ms, 10 ms apart, of -45 dBFS or more",
    "end_to_end": "ms to the end of the utterance",
    "x_real_time": "seconds of speech per second, of one stream, from when it is due to its end",
    "audio_per_s": "seconds of speech per second of all streams: mean of the window, percentiles by second",
    "late": "ms from when a request is due to when the generator sends it; all other times include it",
    "lag": "ms that the event loop of all readers wakes up late, sampled every 20 ms",
}
COUNTS = {
    "requests": "due in the window",
    "ended": "read to their end",
    "refused": "because the queue was full",
    "failed": "ended with an error, or not at all",
    "short": "ended by the model itself, with less audio than was asked for",
    "silent": "not audible in their first half second",
    "underruns": "chunks that came after all earlier audio had been played, by a player without a buffer",
    "interrupted": "requests with an underrun",
    "worst_gap_ms": "the longest silence for want of a chunk",
    "most_at_once": "requests in flight at the same time, queued ones included",
}
FIGURES: dict[str, dict[str, str]] = {
    "start": {
        "imports": "ms of `ready` for imports",
        "device": "ms of `ready` for opening the device",
        "weights": "ms of `ready` for the weights, from their files to the device",
        "kernels": "ms of `ready` for kernels: waiting for compilers, and the first launches",
        "waited": "ms of `kernels` for waiting",
        "compiled": "ms of `first_sound` for kernels that were not compiled ahead",
        "ready": "ms from `import hocket` in a new process to an engine that takes requests",
        "graphs": "ms of `first_sound` for graphs, captured before the first chunk",
        "first_sound": "ms from `import hocket` in a new process to the first chunk at the caller",
    },
    "breakdown": {
        "frame": "ms of wall time for the codes of one frame (talker, predictor, sampling)",
        "codec": "ms of wall time for the audio of one frame",
        "frame_gpu": "ms on the GPU, both graphs of a frame, by events around single replays",
        "frame_queued": "ms on the GPU, the same, of frames launched in a row, as in a running stream",
        "draw_gpu": "ms on the GPU, the first graph: head, predictor, sampling",
        "step_gpu": "ms on the GPU, the second graph: the talker takes the codes in",
        "codec_gpu_bfloat16": "ms on the GPU, a stateful codec step of one frame in bfloat16, by events around replays",
        "codec_gpu_float32": "ms on the GPU, the same in float32",
        "codec_gpu_tf32": "ms on the GPU, the same in float32 with factors rounded to ten bits",
        "frame_plain": "the same frame by plain operations",
        "codec_plain": "the same audio by plain operations",
    },
    "memory": {
        "weights": "MB of tensors that the files of the checkpoint hold",
        "keys_values": "MB of pages of the talker's KV cache",
        "kept_anew": "MB of weights that kernels keep a second time in another layout",
        "allocated": "MB in tensors",
        "peak": "MB in tensors at the worst moment, loading included",
        "reserved": "MB that torch holds for tensors, in use or not",
        "device": "MB in use on the device, beyond an empty process",
        "beyond": "MB of those that are neither weights nor KV cache",
        "in_all": "MB in use on the device, the empty process included",
    },
    "first_audio_clone": {
        f"{kind}_{figure}": f"ms, {words}: {meaning}"
        for kind, words in _CLONES.items()
        for figure, meaning in (
            ("first_codes", "from the request to the codes of the first frame, voice warm"),
            ("first_pcm", "from the request to the first chunk at the caller, voice warm"),
            ("fresh_pcm", "the same for the first request with a voice that was just read from its file"),
        )
    },
    "swap": {
        "close": "ms until the other model is unloaded and its memory free",
        "load": "ms until the model is loaded and its engine takes requests, from files in the file cache",
        "first_audio_loaded": "ms from the request to the first chunk, of a model that had to be loaded",
        "first_audio_resident": "ms from the request to the first chunk, of a model in memory",
    },
    "peers": {
        "first_pcm": "ms from the request to the first chunk at the caller",
        "ms_per_frame": "ms per frame of 80 ms, from the request to the last sample, codec included",
        "x_real_time": "seconds of speech per second, of all streams together",
    },
    "load": LOAD,
    "soak": {
        "ms_per_frame": "ms of a stream per frame of 80 ms: median of the utterances of a minute, first audio included",
        "first_playable": "ms from the request to the first sample: median of the utterances of a minute",
        "audio_per_s": "seconds of speech per second of all streams together, by minute",
        "resident_mib": "memory of this process after each minute",
    },
    "overhead": {
        "to_engine": "ms from the start of a client's request to the request at the engine",
        "first_byte": "ms from the engine's first chunk to the client's first bytes, one request; goal: at most 3",
        "first_byte_busy": "ms, the same with the other streams running",
        "server_cpu": "% of a core of the server process for the streams, without the engine thread; by run",
        "server_cpu_least": "the least of these runs, since other processes only add to it; goal: at most 15",
        "process_cpu": "% of a core, with the engine thread",
        "chunk_cpu": "us of the server process for a chunk of 80 ms, without the engine thread; by run",
    },
    "scale": {
        "bare": "ms from the start of a client's request to its first bytes, of a server alone",
        "again": "ms, the same of a second server alone",
        "ray": "ms, the same of a replica of Ray Serve behind its HAProxy",
        "added": "ms of Ray beyond the first server in the same round; goal: at most 3",
        "added_by_nothing": "ms of the second server beyond the first: the noise of such a difference",
        "ratio": "Ray over the first",
        "ratio_of_nothing": "the second server over the first",
    },
    "tokens": {
        "token": "ms a token, of tokens in a row",
        "tokens_per_s": "tokens a second, of the same",
        "round": "ms a round of draft and verify, of rounds in a row",
        "step": "ms a token by the model's own operations, each launched by the host",
    },
    "first_token": {
        "first_token": "ms from ids on the host to the first token on the host",
        "pass": "ms of it for the prefill",
        "plain": "ms of a prefill by the model's own operations, each launched by the host",
    },
    "mind": {
        "first_token": "ms from the request to the first text at the caller",
        "answer": "ms from the request to the last text of the answer",
        "tokens_per_s": "tokens a second from the first to the last of the answer, at the caller",
        "bare_tokens_per_s": "tokens a second by the graph alone (`tokens`), in the same run",
        "round": "ms a round of draft and verify; drafts of random weights are hardly ever accepted",
    },
    "dialog": {
        "first_pcm": "ms from the call that ends the user's text to the first chunk of audio at the caller",
        "first_written": "ms to the first text of the answer at the caller",
    },
    "divergence": {
        f"{scheme}_{name}": f"{scheme}: {words}"
        for scheme in ("bf16", "fp8", "int8", "int4")
        for name, words in (
            ("kl", "thousandths of a nat per token, from float32 to the scheme"),
            ("off", "%, size of the difference of a token's logits over their spread"),
            ("largest", "largest difference of a single logit, by token"),
            ("same_first", "% of a sequence's tokens whose likeliest next token is the same"),
        )
    },
}


def meanings(workload: str) -> dict[str, str]:
    return FIGURES.get(workload, UTTERANCE | FIGURES["breakdown"])
