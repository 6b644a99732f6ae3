"""A page to explore the attention of a model in a browser, as one file."""

from regard.views.page.document import Page
from regard.views.page.page import page

__all__ = ["Page", "page"]
