"""For each line of {secrets, headers, body} on standard input (the body in base64) prints the
status that is answered and what is known of the orders then."""
import base64
import json
import sys

from receive import receive

state = {"seen": set(), "orders": {}}
for line in sys.stdin:
    c = json.loads(line)
    status = receive(state, c["secrets"], c["headers"], base64.b64decode(c["body"]))
    print(status, *sorted(f"{order}={known[0]}" for order, known in state["orders"].items()))
