// JavaScript that the engine compiles, calling built-in functions whose code V8 maps a second time; workers of libuv wait beside it.
function compiled(values) {
    const sorted = values.slice().sort((a, b) => a - b);
    return sorted.map((value) => String(value)).join(",").length;
}

function outer() {
    const values = Array.from({ length: 200 }, (_, i) => (i * 7919) % 200);
    const end = Date.now() + 50;
    let sum = 0;
    while (Date.now() < end) sum += compiled(values);
    setImmediate(outer, sum);
}

process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
console.log("ready");
outer();
