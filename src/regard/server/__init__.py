"""The map of a recording: served over HTTP, shown in a notebook, published as a folder.

- `regard map book.regard` in a terminal;
- `regard.map(regard.open("book.regard"))` in a notebook;
- `regard publish book.regard site/` for any web server.
"""

try:
    from regard.server.app import app
    from regard.server.notebook import Map
    from regard.server.notebook import map as map
    from regard.server.publish import publish
    from regard.server.serve import serve
except ModuleNotFoundError as error:
    if error.name not in ("fastapi", "google_crc32c", "numcodecs", "pydantic", "uvicorn", "zarr"):
        raise
    raise ImportError(f'the map needs {error.name}: pip install "regard[map]"') from error

# Without `map`: `import *` would shadow the builtin.
__all__ = ["Map", "app", "publish", "serve"]
