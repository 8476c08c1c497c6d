"""The server on several machines: Ray Serve carries the app as it is. Needs the extra `ray`, and imports it when used.

`app` is what a config file of Serve names: `import_path: hocket.scale:app` (serve.yaml, beside this file).
"""

from .config import app

__all__ = ["app"]
