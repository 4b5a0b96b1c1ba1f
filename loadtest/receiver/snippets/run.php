<?php
// For each line of {secrets, headers, body} on standard input (the body in base64) prints the status that
// is answered and what is known of the orders then.
require __DIR__ . '/receive.php';
$state = ['seen' => [], 'orders' => []];
while ($line = fgets(STDIN)) {
    $c = json_decode($line, true);
    $words = [];
    $status = receive($state, $c['secrets'], $c['headers'], base64_decode($c['body']));
    foreach ($state['orders'] as $id => $order) {
        $words[] = "$id={$order['status']}";
    }
    sort($words);
    echo implode(' ', [$status, ...$words]), "\n";
}
