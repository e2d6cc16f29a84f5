"""The page of a service, for people: try an answer, look at thresholds and groups, read the watch.

In: the models, the store and forms. Out: HTML that works without scripts and loads nothing. Open `content.py` first: it
has what the page shows; `routes.py` has the forms, the login and the headers.
"""

from qacal.service.pages.routes import add_routes

__all__ = ["add_routes"]
