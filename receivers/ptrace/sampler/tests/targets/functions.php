<?php
// Three functions with 70, 20 and 10 % of the CPU time, called by methods, closures and native functions. Answers a
// line of input with the CPU time of each function.
function used()
{
    $used = getrusage();
    return $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'] + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) / 1e6;
}

function seventy()
{
    for ($i = 0, $x = 0; $i < 700000; $i++) {
        $x = ($x * 31 + $i) & 0xffff;
    }
    return $x;
}

function twenty()
{
    for ($i = 0, $x = 0; $i < 200000; $i++) {
        $x = ($x * 33 + $i) & 0xffff;
    }
    return $x;
}

function ten()
{
    for ($i = 0, $x = 0; $i < 100000; $i++) {
        $x = ($x * 35 + $i) & 0xffff;
    }
    return $x;
}

class Clock
{
    public $spent = ['seventy' => 0.0, 'twenty' => 0.0, 'ten' => 0.0];

    public function timed($name, $work)
    {
        $start = used();
        $work();
        $this->spent[$name] += used() - $start;
    }
}

function round_of(Clock $clock)
{
    $clock->timed('seventy', 'seventy');
    $clock->timed('twenty', function () { return twenty(); });
    array_map(function ($name) use ($clock) { $clock->timed($name, $name); }, ['ten']);
}

$clock = new Clock();
echo "ready\n";
while (true) {
    round_of($clock);
    $read = [STDIN];
    $none = null;
    if (stream_select($read, $none, $none, 0)) {
        if (fgets(STDIN) === false) {
            exit;
        }
        $parts = [];
        foreach ($clock->spent as $name => $seconds) {
            $parts[] = "$name $seconds";
        }
        echo implode(' ', $parts), "\n";
    }
}
