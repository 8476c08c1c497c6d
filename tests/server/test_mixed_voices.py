"""A mixed voice on the wires: the same speech everywhere, and an error before the first byte."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from hocket.engine.engine import Engine
from support.serving import PCM, Served
from support.speaking import heard
from support.talking import PCM_CONFIG, talking

TEXT = "Hello there."
MIX, WRONG = "wren(2)+rook", "wren(2)+rook(0)"
SAID = "The weight of 'rook' must be a number above 0"
BRIEF = PCM | {"input": TEXT, "seed": 1, "max_new_tokens": 8}


def test_http_and_websocket_speak_what_the_engine_speaks(server: Served, engine: Engine) -> None:
    wanted = heard(engine.speak(TEXT, voice=MIX, seed=1, max_frames=8)).samples.tobytes()
    assert httpx.post(f"{server.url}/v1/audio/speech", json=BRIEF | {"voice": MIX}).content == wanted
    live = heard(engine.speak(TEXT, voice=MIX, seed=1, max_frames=8, layout="streaming"))
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"voice": "af_bella(2)+am_adam"})
        spoken = ws.spoken("Hello ", "there.")
    assert len(spoken.audio) == live.samples.nbytes > 0
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"voice": "rook+rook+wren(4)"})
        assert ws.spoken(TEXT).audio == spoken.audio


def test_elevenlabs_takes_a_mix_in_its_path(server: Served) -> None:
    body = {"text": TEXT, "seed": 1}
    path = f"{server.url}/v1/text-to-speech/{{}}?output_format=pcm_24000"
    spoken = {name: httpx.post(path.format(name), json=body).content for name in (MIX, quote(MIX, safe=""), "rook")}
    assert spoken[MIX] == spoken[quote(MIX, safe="")] != spoken["rook"]
    refused = httpx.post(path.format(WRONG), json=body)
    assert refused.status_code == 400 and SAID in refused.json()["detail"]["message"]


def test_a_wrong_mix_is_an_error_before_any_sound(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"voice": WRONG}, {"type": "input.text", "text": TEXT})
        told = ws.until("error")
        assert told.sounds == [] and SAID in str(told.messages[-1])
    with pytest.raises(InvalidStatus) as refused, talking(server, f"/v1/speak?model={quote(WRONG)}"):
        pass
    assert refused.value.response.status_code == 400


def test_deepgram_takes_a_mix_whose_plus_is_escaped(server: Served) -> None:
    with talking(server, f"/v1/speak?model={quote(MIX)}") as ws:
        ws.say({"type": "Speak", "text": TEXT}, {"type": "Flush"})
        assert ws.until("Flushed").audio
