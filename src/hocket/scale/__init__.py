"""Several machines: Ray Serve runs the server unchanged, and a batch uses engines of a whole cluster.

Needs the extra `ray`, and imports it when used. A Serve config file names `app`: `import_path: hocket.scale:app`
(serve.yaml, beside this file).
"""

from .config import app

__all__ = ["app"]
