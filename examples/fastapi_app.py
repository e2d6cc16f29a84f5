"""A handler that says how far to trust an answer. Run: MODEL=model uvicorn --app-dir examples fastapi_app:app."""

import os
from typing import Any

from fastapi import Body, FastAPI

import qacal

app = FastAPI()
model = qacal.load(os.environ.get("MODEL", "model"), warm=True)


@app.post("/trust")
def trust(question: str = Body(), answer: str = Body(), confidence: float = Body()) -> dict[str, Any]:
    """Return the calibrated confidence, the decision if the model has a threshold, and why."""
    evidence = model.explain(question, answer, confidence)
    return {name: evidence[name] for name in ("calibrated", "low", "high", "decision", "parts")}
