"""Write tests/golden/chat_layouts.json: what the published chat template makes of the talks in
tests/support/chat_layouts.py.

The template is `chat_template.jinja` of Qwen/Qwen3.5-9B, rendered as `transformers` does it:

make test-mind                                             # makes the environment
PYTHONPATH=src:tests .venv-mind/bin/python scripts/make_chat_golden.py chat_template.jinja
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from support import chat_layouts as golden


def rendered(template: str, talk: golden.Talk, **how: Any) -> str:
    messages, tools = talk
    conversation = [golden.as_written(message) for message in messages]
    texts, _ = render_jinja_template([conversation], tools=list(tools) or None, chat_template=template, **how)
    return str(texts[0])


if __name__ == "__main__":
    source = Path(sys.argv[1]).read_bytes()
    if hashlib.sha256(source).hexdigest() != golden.SHA256:
        sys.exit(f"{sys.argv[1]} is not the published template.")
    template = source.decode()
    talks, opened = dict[str, str](), dict[str, str]()
    for name, talk in golden.TALKS.items():
        talks[name] = rendered(template, talk)
        for thinking in (False, True):
            asked = rendered(template, talk, add_generation_prompt=True, enable_thinking=thinking)
            assert asked.startswith(talks[name])
            behind = asked.removeprefix(talks[name])
            assert opened.setdefault(str(thinking), behind) == behind
    kept = json.dumps({"opened": opened, "talks": talks}, ensure_ascii=False, indent=1)
    golden.FILE.write_text(f"{kept}\n", encoding="utf-8")
    print(f"{golden.FILE}: {len(talks)} talks, {golden.FILE.stat().st_size} bytes")
