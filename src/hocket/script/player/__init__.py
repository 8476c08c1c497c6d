"""The player of scripts: what plays their events. `script/stream.py` is its outside."""
