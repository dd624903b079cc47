<?php
namespace Läden;

class Korb
{
    public function summe($n)
    {
        if ($n) {
            return $this->summe($n - 1);
        }
        return \array_map(function ($x) {
            return iterator_to_array(außen($x), false);
        }, [1]);
    }

    public static function warten()
    {
        fwrite(STDOUT, "ready\n");
        sleep(
            1000
        );
    }
}

function außen($x)
{
    yield from innen($x);
}

function innen($x)
{
    yield eval('return \Läden\Korb::warten();');
}

(new Korb)->summe(2);
