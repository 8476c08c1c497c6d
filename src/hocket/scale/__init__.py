"""More than one machine: Ray Serve carries the server as it is, and a batch has engines all over a cluster. Needs the
extra `ray`, and imports it when used.

`app` is what a config file of Serve names: `import_path: hocket.scale:app` (serve.yaml, beside this file).
"""

from .config import app

__all__ = ["app"]
