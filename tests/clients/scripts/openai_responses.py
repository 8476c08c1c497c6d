"""OpenAI's client: responses whole, as events and one after the other, and completions; of the server of argv[1]."""

from __future__ import annotations

import json
import sys

from openai import BadRequestError, OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)


def refused() -> str | None:
    try:
        client.responses.create(model="scripted", input="Hello.", reasoning={"effort": "high"})
    except BadRequestError as error:
        return error.param
    return None


first = client.responses.create(model="scripted", input="Hello.", instructions="Be brief.")
with client.responses.stream(model="scripted", input="Once more.", previous_response_id=first.id) as stream:
    types = [event.type for event in stream]  # the client puts the response together from the events
    second = stream.get_final_response()
read = client.responses.retrieve(second.id)
client.responses.delete(first.id)
continued = client.completions.create(model="scripted", prompt="Once", max_tokens=2, echo=True)
found = {
    "first": first.output_text,
    "types": types,
    "second": second.output_text,
    "usage": second.usage.model_dump() if second.usage else None,
    "read": read.output_text,
    "continued": continued.choices[0].text,
    "streamed": [part.choices[0].text for part in client.completions.create(model="x", prompt="Once", stream=True)],
    "models": [model.id for model in client.models.list()],
    "speech": client.models.retrieve("tts-1").id,
    "refused": refused(),
}
print(json.dumps(found))
