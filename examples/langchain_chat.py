"""LangChain before `qacal serve MODEL --upstream URL`: run it with a question, and the name of the LLM."""

import os
import sys

from langchain_openai import ChatOpenAI

if len(sys.argv) != 3:
    sys.exit("usage: python examples/langchain_chat.py QUESTION LLM")
url = os.environ.get("QACAL_URL", "http://127.0.0.1:8321/v1")
# LangChain drops fields that it does not know; it keeps headers, if asked to.
llm = ChatOpenAI(model=sys.argv[2], base_url=url, api_key="none", include_response_headers=True)
message = llm.invoke(sys.argv[1])
confidence = message.response_metadata["headers"].get("x-qa-calibration-confidence")
print(message.content, "--", "unknown confidence" if confidence is None else f"confidence {float(confidence):.2f}")
