"""The walk in Python: with urllib, or with requests when REQUESTS is set.
STREAM=1 sends bodies from a generator, without a length."""
import json
import os
import time
import urllib.request

API = os.environ["BASE_URL"] + "/api/vendor/v1"
STREAM = os.environ.get("STREAM")
token = None

if os.environ.get("REQUESTS"):
    import requests

    session = requests.Session()

    def send(method, url, body, headers):
        if STREAM and body is not None:
            headers["Content-Type"] = "application/json"
            answer = session.request(method, url, data=iter([json.dumps(body).encode()]), headers=headers)
        else:
            answer = session.request(method, url, json=body, headers=headers)
        return answer.status_code, answer.json()

else:

    def send(method, url, body, headers):
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
            if STREAM:
                data = iter([data])
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.load(refusal)


def call(want, method, path, body=None, **headers):
    if token:
        headers["Authorization"] = "Bearer " + token
    status, answer = send(method, API + path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    if status != want:
        raise SystemExit(f"{method} {path} answered {status}: {answer}")
    return answer["data"]


token = call(200, "POST", "/token", {"clientId": os.environ["CLIENT_ID"], "clientSecret": os.environ["CLIENT_SECRET"]})["accessToken"]

STORE = {
    "taxNumber": "1234567890", "name": "Moda Şubesi", "phone": "02165550011",
    "address": {"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
}
fleet = call(200, "PUT", "/stores/moda", STORE)["availableFleets"][0]["fleetId"]
state = call(200, "PUT", "/stores/moda", {**STORE, "fleetId": fleet})
while state["status"] != "Active":
    time.sleep(0.3)
    state = call(200, "PUT", "/stores/moda", STORE)


def order(identifier, note=""):
    return {
        "externalStoreId": "moda", "externalOrderId": identifier,
        "recipient": {"name": "Ayşe Kaya", "phone": "05321234567"},
        "dropoff": {"text": "Bahariye Caddesi No: 2, Kadıköy", "latitude": 40.988, "longitude": 29.03},
        "packageNote": note,
    }


delivered = call(201, "POST", "/orders", order("A-1"), Idempotency_Key="A-1")["orderId"]
again = call(201, "POST", "/orders", order("A-1"), X_Idempotency_Key="A-1")["orderId"]
if again != delivered:
    raise SystemExit(f"the order again is {again}, not {delivered}")

cancelled = call(201, "POST", "/orders", order("A-2", "SIM:HOLD=Assigned"), Idempotency_Key="A-2")["orderId"]
call(200, "POST", f"/orders/{cancelled}/cancel")

time.sleep(4)
while call(200, "GET", f"/orders/{delivered}")["status"] != "Delivered":
    time.sleep(10)
print(delivered, cancelled, "HTTP/1.1")
