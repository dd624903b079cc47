//! Programs as they are: the unwinder against the second one, and how many stacks reach their root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use profbridge_ptrace::address_space::AddressSpace;
use profbridge_ptrace::elf::ObjectCache;
use profbridge_ptrace::message::Trust;
use profbridge_ptrace::process_files::ProcessFiles;
use profbridge_ptrace::unwind::{Registers, StackMemory, Unwinder};
use proptest::prelude::*;

use crate::oracle::{self, End};
use crate::snapshot::Process;
use crate::target::Target;

/// Looks at all threads until `count` stacks were seen, holds each against the second unwinder, and returns how many reached their root.
fn complete_of(target: &Target, count: usize) -> usize {
    let mut cache = ObjectCache::default();
    let mut process = Process::open(target.pid(), &mut cache);
    let (mut complete, mut seen) = (0, 0);
    while seen < count {
        for thread in target.threads() {
            let (mut snapshot, mut frames, mut outcome) = process.look(thread);
            if outcome.unknown_code.is_some() {
                process.reload(&mut cache);
                (frames, outcome) = snapshot.unwind(&process.files, &process.space, &mut process.unwinder);
            }
            complete += usize::from(outcome.trust == Trust::Complete);
            seen += 1;
            // Reading all entries for every frame takes a while.
            if seen % 16 == 0 {
                let (pcs, end) = oracle::unwind(&process.space, &snapshot.registers, &mut snapshot.stack, 40);
                let ours: Vec<_> = frames.iter().map(|frame| frame.pc).collect();
                assert!(ours.starts_with(&pcs), "{ours:x?} should start with {pcs:x?}");
                assert!(end != End::Root || (ours == pcs && outcome.trust == Trust::Complete));
            }
        }
    }
    complete
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A script for an interpreter.
fn script(name: &str, text: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&place, text).expect("the script can be written");
    place
}

/// Guarantees: at least 99 % of the stacks of Python in OpenSSL's handwritten assembly, in its interpreter loop and in JSON reach
/// their root, and are the ones the plain unwinder finds.
#[test]
fn python_in_openssl() {
    let Some(python) = found("python3") else {
        eprintln!("not run: there is no python3");
        return;
    };
    let text = "
import hashlib, json, threading
def work():
    data = b'x' * 100000
    while True:
        hashlib.sha256(data).digest(); hashlib.md5(data).digest(); json.dumps(list(range(200)))
threading.Thread(target=work, daemon=True).start()
print('\\n', end='', flush=True)
work()
";
    let script = script("hash.py", text);
    let target = Target::start(&python, &[script.to_str().expect("a plain path")]);
    let complete = complete_of(&target, 400);
    assert!(complete >= 396, "{complete} of 400");
}

/// Guarantees: at least 99 % of the stacks of node, in code compiled at run time and in V8's built-in functions, reach their root.
#[test]
fn node() {
    let Some(node) = found("node") else {
        eprintln!("not run: there is no node");
        return;
    };
    let text = "
const things = []; for (let i = 0; i < 1000; i++) things.push({a: i, b: 'x' + i});
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
function work() {
  for (let i = 0; i < 20; i++) { fib(17); JSON.stringify(things); things.map(x => x.a).sort((a, b) => b - a); /a+b/.test('aab' + i) }
  setImmediate(work);
}
require('fs').writeSync(1, '\\n');
work();
";
    let script = script("work.js", text);
    let target = Target::start(&node, &[script.to_str().expect("a plain path")]);
    let complete = complete_of(&target, 600);
    assert!(complete >= 594, "{complete} of 600");
}

/// Guarantees: at least 95 % of the stacks of Go, goroutines and the runtime on its own stacks alike, reach their root by frame pointers.
#[test]
fn go() {
    let Some(go) = found("go") else {
        eprintln!("not run: there is no go");
        return;
    };
    let text = "package main
import (\"fmt\"; \"sort\")
func work(n int) int { a := make([]int, n); for i := range a { a[i] = (i * 7919) % n }; sort.Ints(a); return a[1] }
func main() {
  fmt.Println()
  for i := 0; i < 2; i++ { go func() { for { work(1000) } }() }
  select {}
}
";
    let source = script("work.go", text);
    let program = source.with_extension("program");
    let status = Command::new(go).arg("build").arg("-o").arg(&program).arg(&source).status();
    assert!(status.expect("go runs").success());
    let target = Target::start(&program, &[]);
    let complete = complete_of(&target, 400);
    assert!(complete >= 380, "{complete} of 400");
}

/// Memory that is made up: at every address a word that depends on it, of which some point into code and most back into the stack.
struct MadeUp {
    seed: u64,
    code: Vec<u64>,
}

impl StackMemory for MadeUp {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        let mixed = (address ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(match mixed >> 60 {
            0 => return None,
            1 => 0,
            2..8 => address.wrapping_add(mixed >> 52 & 0xff8),
            _ => self.code[(mixed >> 20) as usize % self.code.len()],
        })
    }
}

/// Addresses in functions of everything that is mapped into this process.
fn places(space: &AddressSpace) -> Vec<u64> {
    let functions = |module: &profbridge_ptrace::address_space::Module| {
        let tables = module.object.as_ref().and_then(|object| object.tables());
        let starts = tables.into_iter().flat_map(|tables| tables.starts()).step_by(7);
        starts.map(|start| start.wrapping_add(module.bias).wrapping_add(start % 40)).collect::<Vec<_>>()
    };
    let places = space.modules().iter().filter(|module| module.end - module.start < 4 << 20).flat_map(functions);
    places.filter(|place| space.find(*place).is_some()).collect()
}

/// This process, and places in it.
fn this_process() -> &'static (AddressSpace, Vec<u64>) {
    static SPACE: OnceLock<(AddressSpace, Vec<u64>)> = OnceLock::new();
    SPACE.get_or_init(|| {
        let files = ProcessFiles::open(std::process::id()).expect("this process can be opened");
        let space = AddressSpace::load(&files, None, &mut ObjectCache::default()).expect("its maps can be read");
        let places = places(&space);
        (space, places)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Guarantees: from any place in real code, with any registers known and any stack, the unwinder goes the same steps as the plain one,
    /// as far as call frame information leads.
    #[test]
    fn same_as_the_plain_unwinder(
        start in any::<prop::sample::Index>(),
        values in prop::array::uniform16(any::<u32>()),
        known in any::<u32>(),
        seed in any::<u64>(),
    ) {
        let (space, code) = this_process();
        let mut registers = Registers::full([0; 17]);
        for (register, value) in (0..16).zip(values) {
            registers.set(register, 0x7f00_0000_0000 + u64::from(value & !7));
        }
        registers.set(16, code[start.index(code.len())]);
        registers.known &= known | 1 << 7 | 1 << 16;
        let mut memory = MadeUp { seed, code: code.clone() };
        let (pcs, end) = oracle::unwind(space, &registers, &mut memory, 12);
        let mut frames = Vec::new();
        let outcome = Unwinder::new().unwind(space, &registers, &mut memory, &mut frames);
        let ours: Vec<_> = frames.iter().map(|frame| frame.pc).collect();
        prop_assert!(ours.starts_with(&pcs), "{:x?} should start with {:x?}", ours, pcs);
        match end {
            End::Root => prop_assert_eq!((ours.len(), outcome.trust), (pcs.len(), Trust::Complete)),
            End::Missing => prop_assert_eq!((ours.len(), outcome.trust), (pcs.len(), Trust::Truncated)),
            End::NoEntry | End::Enough => {}
        }
    }
}
