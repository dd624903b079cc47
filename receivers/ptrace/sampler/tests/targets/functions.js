// Three functions with 70, 20 and 10 % of the CPU time, called by methods, arrow functions and call-backs. Answers a
// line of input with the CPU time of each function.
'use strict';
const spent = { seventy: 0, twenty: 0, ten: 0 };

function used() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
}

function seventy(count) {
    let x = 0;
    for (let i = 0; i < count; i++) x = (x * 31 + i) | 0;
    return x;
}

function twenty(count) {
    let x = 0;
    for (let i = 0; i < count; i++) x = (x * 33 + i) | 0;
    return x;
}

function ten(count) {
    let x = 0;
    for (let i = 0; i < count; i++) x = (x * 35 + i) | 0;
    return x;
}

class Clock {
    timed(name, work) {
        const start = used();
        const result = work();
        spent[name] += used() - start;
        return result;
    }
}

const clock = new Clock();
let sum = 0;

function round() {
    sum += clock.timed('seventy', () => seventy(2100000));
    sum += clock.timed('twenty', () => twenty(600000));
    [1].forEach(function each() {
        sum += clock.timed('ten', () => ten(300000));
    });
    setImmediate(round);
}

process.stdin.on('data', () => {
    console.log(Object.entries(spent).map(([name, seconds]) => `${name} ${seconds}`).join(' '));
});
process.stdin.on('end', () => process.exit(0));
console.log('ready');
round();
