"""An interactive page of a model's attention, as one HTML file."""

from regard.views.page.document import Page
from regard.views.page.page import page

__all__ = ["Page", "page"]
