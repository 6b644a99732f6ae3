"""The code of the documentation. Pages show it by sections; `python -m docs_src` runs it."""
