"""LiteLLM before `qacal serve MODEL --upstream URL`: run it with a question, and the name of the LLM."""

import os
import sys

import litellm

if len(sys.argv) != 3:
    sys.exit("usage: python examples/litellm_completion.py QUESTION LLM")
url = os.environ.get("QACAL_URL", "http://127.0.0.1:8321/v1")
messages = [{"role": "user", "content": sys.argv[1]}]
reply = litellm.completion(model=f"openai/{sys.argv[2]}", api_base=url, api_key="none", messages=messages)
evidence = reply.qa_calibration
print(reply.choices[0].message.content, "--", evidence.get("reason") or f"confidence {evidence['calibrated']:.2f}")
