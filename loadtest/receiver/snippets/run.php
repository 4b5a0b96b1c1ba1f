<?php
// Answers "true" or "false" for each line of {secret, headers, body, now} on standard input.
require __DIR__ . '/verify.php';
while ($line = fgets(STDIN)) {
    $c = json_decode($line, true);
    echo json_encode(verify($c['secret'], $c['headers'], $c['body'], $c['now'])), "\n";
}
