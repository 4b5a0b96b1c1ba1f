<?php
const RANK = ['Searching' => 1, 'Assigned' => 2, 'PickingUp' => 3, 'PickedUp' => 4, 'Delivering' => 5,
    'Delivered' => 6, 'Failed' => 6, 'Cancelled' => 6];

// Takes one webhook and returns the status to answer. $body is file_get_contents('php://input'), before any
// parsing; $headers has names in lower case: array_change_key_case(getallheaders()). $state belongs in your database,
// eventId as a unique key, written in one transaction with the order: ['seen' => [], 'orders' => []].
function receive(array &$state, array $secrets, array $headers, string $body): int
{
    if (!verify($secrets, $headers, $body)) {
        return 401;
    }
    try {
        $event = json_decode($body, true, 64, JSON_THROW_ON_ERROR); // only now
        $at = (int) (new DateTimeImmutable($event['occurredAt'] ?? '?'))->format('Uv');
    } catch (Throwable) {
        return 400;
    }
    if (!is_string($event['eventId'] ?? null)) {
        return 400;
    }
    if (isset($state['seen'][$event['eventId']])) {
        return 204; // has arrived before
    }
    if ($event['event'] === 'delivery.status_changed') { // others: nothing to do, and 2xx
        ['orderId' => $order, 'status' => $status] = $event['data'];
        $known = $state['orders'][$order] ?? null;
        // Events may overtake each other; steps that were skipped have the same time.
        if (!$known || [$at, RANK[$status] ?? 0] > [$known['at'], RANK[$known['status']] ?? 0]) {
            $state['orders'][$order] = ['status' => $status, 'at' => $at];
        }
    }
    $state['seen'][$event['eventId']] = true;
    return 204;
}

// Reports whether a webhook is the service's and at most five minutes old. $secrets are whole, "whsec_…"; after a
// rotation the new one beside the old for 24 h, then POST /webhook/test.
function verify(array $secrets, array $headers, string $body): bool
{
    [$id, $timestamp] = [$headers['webhook-id'] ?? '', $headers['webhook-timestamp'] ?? ''];
    if (!preg_match('/^[0-9]{1,12}$/D', $timestamp) || abs(time() - (int) $timestamp) > 300) {
        return false;
    }
    $own = $standard = false;
    foreach ($secrets as $secret) {
        // The service's signature: of the body, keyed with the text of the secret.
        $want = 'sha256=' . hash_hmac('sha256', $body, $secret);
        $own = hash_equals($want, $headers['x-service-signature'] ?? '') || $own;
        // Standard Webhooks: of id, time and body, keyed with the secret's bytes.
        $key = base64_decode(preg_replace('/^whsec_/', '', $secret));
        $want = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
        foreach (explode(' ', $headers['webhook-signature'] ?? '') as $got) { // two after a rotation
            $standard = hash_equals($want, $got) || $standard;
        }
    }
    return $own && $standard;
}
