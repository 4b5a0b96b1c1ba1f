"""Answers "true" or "false" for each line of {secret, headers, body, now} on standard input."""
import json
import sys

from verify import verify

for line in sys.stdin:
    c = json.loads(line)
    print(str(verify(c["secret"], c["headers"], c["body"].encode(), c["now"])).lower())
