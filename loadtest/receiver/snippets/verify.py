import base64
import hashlib
import hmac
import time


def verify(secret, headers, body, now=None):
    """Tells whether a webhook is the service's and fresh. body: the raw bytes, before any
    JSON parsing (Flask: request.get_data()); headers: names in lower case."""
    # 1. The service's own signature: HMAC of the body, keyed with the text of the secret.
    own = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(own.encode(), headers.get("x-service-signature", "").encode()):
        return False

    # 2. Standard Webhooks: id, time and body, keyed with the decoded secret. It protects against replays.
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs((now or time.time()) - int(timestamp)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    want = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    return any(  # two signatures after a rotation
        hmac.compare_digest(want, got.encode()) for got in headers.get("webhook-signature", "").split(" ")
    )
