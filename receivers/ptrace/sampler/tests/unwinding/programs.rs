//! Unwinds unmodified programs, compares the stacks with those of the second unwinder, and counts how many reach their
//! root.

use std::process::Command;
use std::sync::OnceLock;

use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::Trust;
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::unwind::{Registers, StackMemory, Unwinder};
use proptest::prelude::*;

use crate::oracle::{self, OracleEnd};
use crate::snapshot::UnwoundProcess;
use crate::target::{ComputingTarget, found, interpret, script};

/// Unwinds all threads of a computing target until it has `count` stacks, compares some with those of the second
/// unwinder, and returns how many are complete.
fn complete_of(target: &ComputingTarget, count: usize) -> usize {
    let mut cache = ObjectCache::default();
    let mut process = UnwoundProcess::open(target.pid(), &mut cache);
    let (mut complete, mut seen) = (0, 0);
    while seen < count {
        target.run_on();
        for thread in target.threads() {
            let (mut snapshot, frames, outcome) = process.look_at_known_code(thread, &mut cache);
            complete += usize::from(outcome.trust == Trust::Complete);
            seen += 1;
            if outcome.trust != Trust::Complete {
                let pcs: Vec<_> = frames.iter().map(|frame| frame.pc).collect();
                eprintln!("thread {thread}: {outcome:?} {pcs:x?}");
            }
            // The second unwinder is slow, since it reads all entries for every frame.
            if seen % 16 == 0 {
                let (pcs, end) = oracle::unwind(&process.space, &snapshot.registers, &mut snapshot.stack, 40);
                let ours: Vec<_> = frames.iter().map(|frame| frame.pc).collect();
                assert!(ours.starts_with(&pcs), "{ours:x?} should start with {pcs:x?}");
                assert!(end != OracleEnd::Root || (ours == pcs && outcome.trust == Trust::Complete));
            }
        }
    }
    complete
}

/// Unwinds threads while they are blocked until it has `count` stacks. Returns how many are complete with only the
/// stack pointer and the program counter; each of these equals the stack found with all registers.
fn complete_while_blocked(target: &ComputingTarget, count: usize) -> usize {
    let mut cache = ObjectCache::default();
    let mut process = UnwoundProcess::open(target.pid(), &mut cache);
    let (mut complete, mut seen) = (0, 0);
    while seen < count {
        for thread in target.threads().into_iter().filter(|thread| target.is_blocked(*thread)) {
            let (mut snapshot, frames, outcome) = process.look_at_known_code(thread, &mut cache);
            // A thread that is stopped in a system call stays in it: the instruction before its program counter is
            // `syscall`.
            let mut before = [0; 2];
            let pc = snapshot.registers.instruction_pointer();
            process.files.read_memory(pc.wrapping_sub(2), &mut before);
            if before != [0x0f, 0x05] {
                continue;
            }
            seen += 1;
            let (passive, found) = process.unwind_passive(&mut snapshot);
            if found.trust != Trust::Guessed {
                assert!(frames.starts_with(&passive), "{passive:x?} instead of {frames:x?}");
            }
            assert!(found.trust != Trust::Complete || outcome.trust == Trust::Complete && passive == frames);
            complete += usize::from(found.trust == Trust::Complete);
        }
    }
    complete
}

/// Guarantees: at least 99 % of the stacks of Python in OpenSSL's handwritten assembly, in its interpreter loop and in
/// JSON are complete, and equal those of the second unwinder.
#[test]
fn python_in_openssl() {
    let Some(python) = found("python3") else { return };
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
    let target = interpret(&python, &[], &script("hash.py", text));
    let complete = complete_of(&target, 400);
    assert!(complete >= 396, "{complete} of 400");
}

/// Guarantees: at least 99.5 % of the stacks of blocked Python threads, also in calls through libffi, are complete
/// although only two of their registers are known.
#[test]
fn blocked_python() {
    let Some(python) = found("python3") else { return };
    let text = "
import ctypes, queue, select, os, threading, time
libc = ctypes.CDLL(None)
epoll = libc.epoll_create1(0)
def through_libffi():
    while True: libc.epoll_wait(epoll, ctypes.byref(ctypes.create_string_buffer(12)), 1, 5)
def sleep():
    while True: time.sleep(0.004)
def wait():
    while True:
        try: queue.Queue().get(timeout=0.003)
        except queue.Empty: pass
def select_one():
    end, _ = os.pipe()
    while True: select.select([end], [], [], 0.006)
for work in (through_libffi, sleep, wait, select_one): threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
print('\\n', end='', flush=True)
threading.Event().wait()
";
    let target = interpret(&python, &[], &script("blocked.py", text));
    let complete = complete_while_blocked(&target, 600);
    assert!(complete >= 597, "{complete} of 600");
}

/// Guarantees: at least 99.5 % of the stacks of Rust threads that are blocked in the standard library, which is
/// compiled with frame pointers, are complete although only two of their registers are known.
#[test]
fn blocked_rust() {
    let Some(rustc) = found("rustc") else { return };
    let text = "
use std::{io::Read, net::{TcpListener, UdpSocket}, sync::mpsc, thread, time::Duration};
fn main() {
    let (there, here) = mpsc::channel::<u8>();
    thread::spawn(move || here.iter().count());
    thread::spawn(move || loop { there.send(1).ok(); thread::sleep(Duration::from_millis(3)); });
    thread::spawn(|| TcpListener::bind(\"127.0.0.1:0\").unwrap().accept().is_ok());
    thread::spawn(|| UdpSocket::bind(\"127.0.0.1:0\").unwrap().recv(&mut [0; 9]).is_ok());
    thread::spawn(|| loop { thread::park() });
    println!();
    std::io::stdin().read_to_string(&mut String::new()).ok();
}
";
    let source = script("blocked.rs", text);
    let program = source.with_extension("program");
    let status = Command::new(rustc).args(["-O", "-o"]).arg(&program).arg(&source).status();
    assert!(status.expect("rustc runs").success());
    let target = ComputingTarget::start(&program, &[]);
    let complete = complete_while_blocked(&target, 600);
    assert!(complete >= 597, "{complete} of 600");
}

/// Guarantees: at least 99 % of the stacks of node, in code compiled at run time and in V8's built-in functions, are
/// complete.
#[test]
fn node() {
    let Some(node) = found("node") else { return };
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
    let target = interpret(&node, &[], &script("work.js", text));
    let complete = complete_of(&target, 600);
    assert!(complete >= 594, "{complete} of 600");
}

/// Guarantees: at least 99.5 % of the stacks of Go are complete, of goroutines and of the runtime on its own stacks,
/// for blocked threads with only two registers; also for a program without symbols. If the garbage collector runs all
/// the time, 97 % are: it moves goroutines' stacks meanwhile, so that below `systemstack` only the thread's own part of
/// the stack can be determined.
#[test]
fn go() {
    let Some(go) = found("go") else { return };
    let text = "package main
import (\"fmt\"; \"os\"; \"sort\"; \"time\")
var collect = len(os.Args) > 1
func work(a []int) []int {
  if collect { a = make([]int, len(a)) }
  for i := range a { a[i] = (i * 7919) % len(a) }
  sort.Ints(a)
  return a
}
func main() {
  fmt.Println()
  for i := 0; i < 2; i++ { go func() { a := make([]int, 1000); for { a = work(a) } }() }
  go func() { a := make([]int, 10); for { time.Sleep(time.Millisecond); a = work(a) } }()
  os.Stdin.Read(make([]byte, 1))
}
";
    let source = script("work.go", text);
    for flags in ["", "-s -w"] {
        let program = source.with_extension(if flags.is_empty() { "program" } else { "stripped" });
        let status = Command::new(&go).args(["build", "-ldflags", flags, "-o"]).arg(&program).arg(&source).status();
        assert!(status.expect("go runs").success());
        for (arguments, least) in [(&[][..], 597), (&["collect"], 582)] {
            let target = ComputingTarget::start(&program, arguments);
            let complete = complete_of(&target, 600);
            assert!(complete >= least, "{complete} of 600 {arguments:?}");
            let complete = complete_while_blocked(&target, 600);
            assert!(complete >= least, "{complete} of 600 {arguments:?}");
        }
    }
}

/// Invented memory: the word at each address is computed from the address; some words point into code and most point
/// back into the stack.
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

/// Addresses in functions of all files mapped into this process.
fn places(space: &AddressSpace) -> Vec<u64> {
    let functions = |module: &profbridge_sampler::address_space::Module| {
        let tables = module.object.as_ref().and_then(|object| object.tables());
        let starts = tables.into_iter().flat_map(|tables| tables.starts()).step_by(7);
        starts.map(|start| start.wrapping_add(module.bias).wrapping_add(start % 40)).collect::<Vec<_>>()
    };
    let places = space.modules().iter().filter(|module| module.end - module.start < 4 << 20).flat_map(functions);
    places.filter(|place| space.find(*place).is_some()).collect()
}

/// The address space of this process, and addresses of code in it.
fn this_process() -> &'static (AddressSpace, Vec<u64>) {
    static SPACE: OnceLock<(AddressSpace, Vec<u64>)> = OnceLock::new();
    SPACE.get_or_init(|| {
        let files = ProcessFiles::open(std::process::id()).expect("this process can be opened");
        let space = AddressSpace::load(&files, None, &mut ObjectCache::default()).expect("its maps can be read");
        let places = places(&space);
        (space, places)
    })
}

/// Whether a direct call, or a call through an address in memory, ends at this address of this process.
fn is_behind_a_call(address: u64) -> bool {
    let mut bytes = [0; 6];
    let memory = std::fs::File::open("/proc/self/mem").expect("this process can read itself");
    let read = std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, address - 6);
    read.is_ok() && (bytes[1] == 0xe8 || bytes.starts_with(&[0xff, 0x15]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Guarantees: from any address in real code, with any known registers and any stack, the unwinder finds the same
    /// frames as the second unwinder, as far as call frame information suffices.
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
            OracleEnd::Root => prop_assert_eq!((ours.len(), outcome.trust), (pcs.len(), Trust::Complete)),
            // The unwinder searches for a missing frame pointer, and invented stacks contain values that look like one.
            // If the return address follows a call, the stack need not be guessed.
            OracleEnd::Missing => {
                prop_assert!(outcome.trust != Trust::Complete);
                let shown = ours.get(pcs.len()).is_none_or(|&caller| is_behind_a_call(caller));
                prop_assert!(outcome.trust == Trust::Guessed || shown, "{:x?} goes on from {:x?}", ours, pcs);
            }
            OracleEnd::NoEntry | OracleEnd::Enough => {}
        }
    }
}
