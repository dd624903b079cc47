// Waits in a stack of known functions, each in the tier of V8 that it requests (--allow-natives-syntax): a module,
// methods, a getter, a generator, call-backs through built-in functions, evaluated text, and inlined functions.
'use strict';
Error.stackTraceLimit = 100;
const word = new Int32Array(new SharedArrayBuffer(4));
let calls = 0;

function waits(deep) {
  // Reading the stack makes V8 compute the source positions of the byte code of the functions on it.
  calls += new Error().stack.length > 0;
  if (deep) Atomics.wait(word, 0, 0, 600000);
  return calls;
}

function innermost(deep) {
  const value = waits(deep);
  return value + 1;
}

function inner(deep) {
  return 1 +
    innermost(deep);
}

function optimized(deep) {
  return inner(deep) + 2;
}

class Läden {
  constructor() { this.depth = 2; this.deep = false; }
  get größe() { return optimized(this.deep); }
  Σumme(depth) {
    if (depth > 0) return this.Σumme(depth - 1);
    return [1].map((one) => this.größe + one)[0];
  }
}

function within(läden) {
  return läden.Σumme(läden.depth);
}

function middle(läden) {
  return within(läden) + 1;
}

function baseline(läden) {
  let sum = 0;
  for (const one of steps(läden)) sum += one;
  return sum;
}

function* steps(läden) {
  yield 1;
  yield middle(läden);
}

const evaluated = eval(`(function evaluated(läden) {
  return baseline(läden);
})
//# sourceURL=/tmp/recorded/evaluated.js`);

function prepare(läden) {
  %NeverOptimizeFunction(waits);
  %NeverOptimizeFunction(steps);
  %NeverOptimizeFunction(läden.Σumme);
  %CompileBaseline(baseline);
  for (const one of [innermost, inner, optimized, within, middle]) %PrepareFunctionForOptimization(one);
  for (let count = 0; count < 3; count += 1) baseline(läden);
  %OptimizeFunctionOnNextCall(optimized);
  %OptimizeMaglevOnNextCall(middle);
  optimized(false);
  middle(läden);
}

const läden = new Läden();
setImmediate(function main() {
  prepare(läden);
  console.log('tiers', %GetOptimizationStatus(optimized), %GetOptimizationStatus(middle), %GetOptimizationStatus(baseline));
  läden.deep = true;
  evaluated(läden);
});
