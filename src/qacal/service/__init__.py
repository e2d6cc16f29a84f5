"""The service: calibrated confidences over HTTP, with a store of what was served and of labels that arrive later.

In: saved models and settings. Out: an application for an ASGI server such as uvicorn; `qacal serve` runs it. Open
`app.py` first: it has the routes.
"""

from qacal.embedders.base import optional_package

for _name in ("fastapi", "uvicorn", "httpx2", "sqlalchemy", "prometheus_client", "opentelemetry._logs"):
    optional_package(_name, "serve")
