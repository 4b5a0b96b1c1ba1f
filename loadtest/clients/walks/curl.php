<?php
// The walk with PHP's curl. STREAM=1 uploads bodies through a callback, without a
// length.
$api = getenv('BASE_URL') . '/api/vendor/v1';
$token = null;
$version = 0;

function call(int $want, string $method, string $path, ?array $body = null, array $headers = []): array
{
    global $api, $token, $version;
    $ch = curl_init($api . $path);
    if ($token !== null) {
        $headers[] = "Authorization: Bearer $token";
    }
    if ($method === 'POST') {
        curl_setopt($ch, CURLOPT_POST, true);
        curl_setopt($ch, CURLOPT_POSTFIELDS, '');
    }
    if ($method !== 'GET') {
        curl_setopt($ch, CURLOPT_CUSTOMREQUEST, $method);
    }
    if ($body !== null) {
        $headers[] = 'Content-Type: application/json';
        $text = json_encode($body);
        if (getenv('STREAM')) {
            curl_setopt($ch, CURLOPT_UPLOAD, true);
            curl_setopt($ch, CURLOPT_READFUNCTION, function ($ch, $in, $length) use (&$text) {
                $part = substr($text, 0, $length);
                $text = substr($text, strlen($part));
                return $part;
            });
        } else {
            curl_setopt($ch, CURLOPT_POSTFIELDS, $text);
        }
    }
    curl_setopt($ch, CURLOPT_HTTPHEADER, $headers);
    curl_setopt($ch, CURLOPT_RETURNTRANSFER, true);
    if (getenv('SSL_CERT_FILE')) {
        curl_setopt($ch, CURLOPT_CAINFO, getenv('SSL_CERT_FILE'));
    }
    $answer = curl_exec($ch);
    if ($answer === false) {
        fwrite(STDERR, "$method $path: " . curl_error($ch) . "\n");
        exit(1);
    }
    $status = curl_getinfo($ch, CURLINFO_RESPONSE_CODE);
    $version = curl_getinfo($ch, CURLINFO_HTTP_VERSION);
    if ($status !== $want) {
        fwrite(STDERR, "$method $path answered $status: $answer\n");
        exit(1);
    }
    return json_decode($answer, true)['data'];
}

$token = call(200, 'POST', '/token', ['clientId' => getenv('CLIENT_ID'), 'clientSecret' => getenv('CLIENT_SECRET')])['accessToken'];

$store = [
    'taxNumber' => '1234567890', 'name' => 'Moda Şubesi', 'phone' => '02165550011',
    'address' => ['text' => 'Moda Caddesi No: 1, Kadıköy', 'latitude' => 40.9816, 'longitude' => 29.0258],
];
$fleet = call(200, 'PUT', '/stores/moda', $store)['availableFleets'][0]['fleetId'];
$state = call(200, 'PUT', '/stores/moda', $store + ['fleetId' => $fleet]);
while ($state['status'] !== 'Active') {
    usleep(300000);
    $state = call(200, 'PUT', '/stores/moda', $store);
}

function order(string $id, string $note = ''): array
{
    return [
        'externalStoreId' => 'moda', 'externalOrderId' => $id,
        'recipient' => ['name' => 'Ayşe Kaya', 'phone' => '05321234567'],
        'dropoff' => ['text' => 'Bahariye Caddesi No: 2, Kadıköy', 'latitude' => 40.988, 'longitude' => 29.03],
        'packageNote' => $note,
    ];
}
$delivered = call(201, 'POST', '/orders', order('A-1'), ['Idempotency-Key: A-1'])['orderId'];
$again = call(201, 'POST', '/orders', order('A-1'), ['X-Idempotency-Key: A-1'])['orderId'];
if ($again !== $delivered) {
    fwrite(STDERR, "the order again is $again, not $delivered\n");
    exit(1);
}
$cancelled = call(201, 'POST', '/orders', order('A-2', 'SIM:HOLD=Assigned'), ['Idempotency-Key: A-2'])['orderId'];
call(200, 'POST', "/orders/$cancelled/cancel");

sleep(4);
while (call(200, 'GET', "/orders/$delivered")['status'] !== 'Delivered') {
    sleep(10);
}
echo "$delivered $cancelled ", $version === CURL_HTTP_VERSION_2_0 ? 'HTTP/2' : 'HTTP/1.1', "\n";
