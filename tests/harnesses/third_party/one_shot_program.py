"""Runs in the sandbox: the prompt on stdin, the answer on stdout and in answer.txt."""

import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen

body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": sys.stdin.read()}]}
headers = {"Authorization": f"Bearer {os.environ['KEY']}", "Content-Type": "application/json"}
with urlopen(Request(os.environ["URL"], json.dumps(body).encode(), headers)) as answer:
    text = json.load(answer)["choices"][0]["message"]["content"]
Path("answer.txt").write_text(text)
print(text, end="")
