<?php
// Holds 64 MiB in strings.
$kept = [];
for ($i = 0; $i < 64 * 1024; $i++) {
    $kept[] = str_repeat(chr($i % 256), 1000);
}
echo "ready\n";
fgets(STDIN);
