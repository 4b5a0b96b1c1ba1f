<?php
// Tells whether a webhook is the service's and fresh. $body is file_get_contents('php://input'),
// before json_decode; $headers has names in lower case: array_change_key_case(getallheaders()).
function verify(string $secret, array $headers, string $body, ?int $now = null): bool
{
    // 1. The service's own signature: HMAC of the body, keyed with the text of the secret.
    $own = 'sha256=' . hash_hmac('sha256', $body, $secret);
    if (!hash_equals($own, $headers['x-service-signature'] ?? '')) {
        return false;
    }

    // 2. Standard Webhooks: id, time and body, keyed with the decoded secret. It protects against replays.
    [$id, $timestamp] = [$headers['webhook-id'] ?? '', $headers['webhook-timestamp'] ?? ''];
    if (!ctype_digit($timestamp) || abs(($now ?? time()) - (int) $timestamp) > 300) {
        return false;
    }
    $key = base64_decode(preg_replace('/^whsec_/', '', $secret));
    $want = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
    foreach (explode(' ', $headers['webhook-signature'] ?? '') as $got) { // two after a rotation
        if (hash_equals($want, $got)) {
            return true;
        }
    }
    return false;
}
