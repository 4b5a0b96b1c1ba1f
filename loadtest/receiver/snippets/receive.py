import base64
import hashlib
import hmac
import json
import re
import time
from datetime import datetime

RANK = {"Searching": 1, "Assigned": 2, "PickingUp": 3, "PickedUp": 4, "Delivering": 5,
        "Delivered": 6, "Failed": 6, "Cancelled": 6}


def receive(state, secrets, headers, body):
    """Takes one webhook and returns the status to answer. body: the raw bytes, before any parsing
    (Flask: request.get_data()); headers: names in lower case. state belongs in your database, eventId
    as a unique key, written in one transaction with the order: {"seen": set(), "orders": {}}."""
    if not verify(secrets, headers, body):
        return 401
    try:
        event = json.loads(body)  # only now
        event_id, at = event["eventId"], datetime.fromisoformat(event["occurredAt"])
        if event_id in state["seen"]:
            return 204  # has arrived before
        if event["event"] == "delivery.status_changed":  # others: nothing to do, and 2xx
            order, status = event["data"]["orderId"], event["data"]["status"]
            # Events may overtake each other; steps that were skipped have the same time.
            known = state["orders"].get(order)
            if known is None or (at, RANK.get(status, 0)) > (known[1], RANK.get(known[0], 0)):
                state["orders"][order] = (status, at)
    except (ValueError, KeyError, TypeError):
        return 400
    state["seen"].add(event_id)
    return 204


def verify(secrets, headers, body):
    """Reports whether a webhook is the service's and at most five minutes old. secrets: whole,
    "whsec_…"; after a rotation the new one beside the old for 24 h, then POST /webhook/test."""
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not re.fullmatch("[0-9]{1,12}", timestamp) or abs(time.time() - int(timestamp)) > 300:
        return False
    own = standard = False
    for secret in secrets:
        # The service's signature: of the body, keyed with the text of the secret.
        want = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        own |= hmac.compare_digest(want.encode(), headers.get("x-service-signature", "").encode())
        # Standard Webhooks: of id, time and body, keyed with the secret's bytes.
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{message_id}.{timestamp}.".encode() + body
        want = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for got in headers.get("webhook-signature", "").split(" "):  # two after a rotation
            standard |= hmac.compare_digest(want.encode(), got.encode())
    return own and standard
