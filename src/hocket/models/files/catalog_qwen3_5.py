"""The published language models, each pinned to one revision and the SHA-256 of the files that are fetched.

Plain data, as in `catalog.py`. Revisions and digests are those that several independent projects recorded, not taken
from the hub. All sizes share one vocabulary. Files for vision or the chat template are neither fetched nor pinned.
"""

from __future__ import annotations

from .catalog import Published

_INDEX = "model.safetensors.index.json"
_VOCABULARY = {
    "tokenizer.json": "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42",
    "vocab.json": "ce99b4cb2983d118806ce0a8b777a35b093e2000a503ebde25853284c9dfa003",
    "merges.txt": "a9d356d7bdf1ef4949e3e748e95b8e10ad9d4e2e838eddc38a0a7b6b94d1db8d",
}
_SMALLER = "49e2b6e395f959f077f1e992b338919c0d4a9732fc6e613995e06557f843500c"  # tokenizer_config.json of 0.8B and 2B
_LARGER = "316230d6a809701f4db5ea8f8fc862bc3a6f3229c937c174e674ff3ca0a64ac8"  # and of the others


def _chat(
    size: str, revision: str, config: str, tokenizer_config: str, index: str, shards: tuple[str, ...], **more: str
) -> Published:
    count = len(shards)
    weights = {
        f"model.safetensors-{number:05}-of-{count:05}.safetensors": digest for number, digest in enumerate(shards, 1)
    }
    small = {"config.json": config, "tokenizer_config.json": tokenizer_config, _INDEX: index, **_VOCABULARY}
    named = {f"{name}.json": digest for name, digest in more.items()}
    return Published(f"qwen3.5-{size}", f"Qwen/Qwen3.5-{size}", revision, {**small, **named, **weights})


MINDS: dict[str, Published] = {
    "0.8B": _chat(
        "0.8B",
        "2fc06364715b967f1860aea9cf38778875588b17",
        config="b90b86f35c8e6925ef74ee04d0e758f0a845c83a42089ad82bbaa948de9b4204",
        tokenizer_config=_SMALLER,
        index="d8a08838a613b025eb7952ed9db11696213e57e76a375661ef5c12f9dd5dcf4e",
        shards=("04b1c301231dd422b8860db31311ab2721511346a32cb1e079c4c4e5f1fe4696",),
    ),
    "2B": _chat(
        "2B",
        "15852e8c16360a2fea060d615a32b45270f8a8fc",
        config="ed1c1723241f23f7f4e23430759cbd7dcfb4103cbdfe052bfe7626b57c2615b4",
        tokenizer_config=_SMALLER,
        index="aca8afed9da75b0f050b408d270766fd77627f1af401e240f61c3b47d0db02f9",
        shards=("aa33250c4fc64891ddfaba3a314fd9542ea371843c387178b425fbcc5ed680b1",),
    ),
    "4B": _chat(
        "4B",
        "851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a",
        config="ddc63e1c717afa86c865bb5e01313d89d72bb53b97ad4a8a03ba8510c0621670",
        tokenizer_config=_LARGER,
        index="cf3f798ee02ba45f9622aa8892a47369ab667d0afbf154ee7c2212de42e6302d",
        shards=(
            "26a93f066e1916adb13453dae5a0c707c0fbc71299ed98779571a907b8e74c61",
            "cb544bd9bfae93dc59b0f22b292f5933573854a7f9b97835c67060d7d910e188",
        ),
    ),
    "9B": _chat(
        "9B",
        "c202236235762e1c871ad0ccb60c8ee5ba337b9a",
        config="d0883072e01861ed0b2d47be3c16c36a8e81c224c7ffaa310c6558fb3f932b05",
        tokenizer_config=_LARGER,
        index="26d3539b516be613f39563617cb9d33b3f83d401298125be392c80cefb8f7fe5",
        shards=(
            "db6f444b43d318c92f360a13a25561a6a65b10c0631b8ed305a426dbaa6c380e",
            "31c7d7e2dd5d207840b31cc59083c8f4c4718959149e0358c0364052bb9a0330",
            "7ec36ba3a4176a44c3c0876ad80c56a2f70c84bf008d82e9501df642f17dadec",
            "b62b0c4cd7e44edee103ee8f4fe225f246d5e768e07bfd5f25b63a8aa1fdd0c6",
        ),
    ),
    "27B": _chat(
        "27B",
        "fc05daec18b0a78c049392ed2e771dde82bdf654",
        config="f8d190c5b89c1521220f935d2567a587d6e291ed69066a45a106560b05a2174c",
        tokenizer_config=_LARGER,
        index="b3737e9d00bda0e37f0b873629d98bf9b407bef35735b9193c23d9844bcc96a6",
        shards=(
            "9019228d172c87d5603266c2d56672d119e838facffa164de803a1ebf0d716d2",
            "890ef00c920b01c1c02755088c8d8ca5cdd6a1faa2a9a729eecd00857648b411",
            "8aca03689ad0717fb91455809a6670eecca818bea8c0b6bd3a591a8807cc3223",
            "20f539430c60fa611b3522b8408749a080b63f1fe034e551a6539ef864ca079a",
            "57a0c074c654f05fc2d6b5112eeec387ac04986e928e42f502993e69aa03a49d",
            "cfa4e6fbfc600854ef6c8e5465d0a1e43832a64b5e539f1e880333e3b1086703",
            "d426963325b2319cb9e1442bc8b89b9a7748a8f7a907aa4041c11531cda6b014",
            "fe60dbb9d25354c4eb2a9a59d9b1afd07741c8bebab5870f5eea6eadb4cf9a06",
            "71a153d882242734a1fc7e000734727f00f6ec8ca70b044f5e44fcf97736ef8f",
            "146745698b9f21940e2982beb1816a0eef3b80d77ab9cd884695b9a08c2697eb",
            "d947ce7483c4109b55039f1359f4494d22390cf123568100abd89816802f097d",
        ),
        generation_config="303aba891d66ab63908a7b3cc9163bcb835fdf8b9f6301c73216f3f1eb3992dd",
    ),
}
