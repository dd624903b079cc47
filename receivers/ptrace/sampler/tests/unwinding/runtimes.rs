//! Code generated at run time by Java and Python, whose callers are known from the source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use profbridge_sampler::address_space::ModuleKind;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::Trust;
use profbridge_sampler::unwind::Frame;

use crate::snapshot::UnwoundProcess;
use crate::target::{ComputingTarget, interpret, script, untested};

/// The names of generated code as its runtime writes them into the perf map: end and name, by start address.
struct PerfMapNames(BTreeMap<u64, (u64, String)>);

impl PerfMapNames {
    /// `None` if the file belongs to another user's earlier process with the same id.
    fn of(pid: u32) -> Option<Self> {
        let text = match std::fs::read_to_string(format!("/tmp/perf-{pid}.map")) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                untested("a perf map of another user has the name of this process's");
                return None;
            }
            text => text.expect("there is a perf map"),
        };
        let entry = |line: &str| {
            let mut fields = line.splitn(3, ' ');
            let [start, length] = [fields.next()?, fields.next()?]
                .map(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok());
            Some((start?, (start? + length?, fields.next()?.to_owned())))
        };
        Some(Self(text.lines().filter_map(entry).collect()))
    }

    fn get(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }
}

/// The kind of each frame of a stack, innermost first.
fn kinds(process: &UnwoundProcess, frames: &[Frame]) -> Vec<FramePart> {
    let part = |frame: &Frame| {
        let address = frame.location.address();
        let Some(mapping) = frame.location.mapping() else {
            let generated = process.space.find(frame.pc).is_some_and(|module| module.kind == ModuleKind::Generated);
            assert!(generated, "{:x} is in no code", frame.pc);
            return FramePart::Generated(address);
        };
        let path = &process.space.mappings()[mapping as usize].path;
        if path.ends_with("/libjvm.so") { FramePart::Machine } else { FramePart::Other }
    };
    frames.iter().map(part).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePart {
    /// Generated at run time, at this address.
    Generated(u64),
    /// In the Java virtual machine.
    Machine,
    Other,
}

/// The Java development kits on this machine: those in `/usr/lib/jvm`, and the one that `JAVA_HOME` names.
fn kits() -> Vec<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = installed.chain(std::env::var_os("JAVA_HOME").map(PathBuf::from));
    let mut folders: Vec<_> = folders.filter_map(|folder| folder.canonicalize().ok()).collect();
    folders.retain(|folder| ["java", "javac", "jcmd"].iter().all(|program| folder.join("bin").join(program).is_file()));
    folders.sort();
    folders.dedup();
    folders
}

/// Starts `Calls.java`. Returns the process and the folder of its class.
fn start_calls(kit: &Path, options: &[&str]) -> (ComputingTarget, tempfile::TempDir) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwinding/targets/Calls.java");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let compiled = Command::new(kit.join("bin/javac")).arg("-d").arg(folder.path()).arg(source).status();
    assert!(compiled.expect("javac runs").success());
    let place = folder.path().to_str().expect("a plain path");
    let arguments = [options, &["-XX:+PreserveFramePointer", "-Xmx64m", "-cp", place, "Calls"]].concat();
    (ComputingTarget::start(&kit.join("bin/java"), &arguments), folder)
}

/// The id of the thread with this name.
fn thread(target: &ComputingTarget, name: &str) -> i32 {
    let is = |thread: &i32| {
        let found = std::fs::read_to_string(format!("/proc/{}/task/{thread}/comm", target.pid())).unwrap_or_default();
        found.trim_end() == name
    };
    loop {
        if let Some(thread) = target.threads().into_iter().find(is) {
            return thread;
        }
        std::thread::yield_now();
    }
}

/// Guarantees: at least 99.5 % of the stacks of Java with `-XX:+PreserveFramePointer` are complete, in the interpreter
/// and in the code of both compilers, also in the first and last instructions of methods. In complete stacks Java's
/// frames are contiguous and were called by the virtual machine once; each caller is one that the source has, and none
/// is missing between.
#[test]
fn java_with_frame_pointers() {
    let kits = kits();
    if kits.is_empty() {
        untested("there is no Java development kit");
    }
    for kit in kits {
        for options in
            [&["-Xint"][..], &["-XX:TieredStopAtLevel=1", "-XX:-Inline"], &["-XX:-TieredCompilation", "-XX:-Inline"]]
        {
            let (target, _folder) = start_calls(&kit, options);
            java_stacks(&kit, &target, options);
        }
    }
}

fn java_stacks(kit: &Path, target: &ComputingTarget, options: &[&str]) {
    const STACKS: usize = 1000;
    let mut cache = ObjectCache::default();
    let mut process = UnwoundProcess::open(target.pid(), &mut cache);
    let calls = thread(target, "calls");
    let mut stacks = Vec::new();
    let mut complete = 0;
    while stacks.len() < STACKS {
        let (_, frames, outcome) = process.look_at_known_code(calls, &mut cache);
        complete += usize::from(outcome.trust == Trust::Complete);
        stacks.push((kinds(&process, &frames), outcome.trust));
    }
    assert!(complete >= STACKS * 995 / 1000, "{complete} of {STACKS} {options:?}");
    let asked = Command::new(kit.join("bin/jcmd")).args([&target.pid().to_string(), "Compiler.perfmap"]).output();
    assert!(asked.expect("jcmd runs").status.success());
    let Some(names) = PerfMapNames::of(target.pid()) else { return };
    std::fs::remove_file(format!("/tmp/perf-{}.map", target.pid())).expect("the map can be removed");
    let mut named = 0;
    for (stack, trust) in stacks {
        if trust != Trust::Complete {
            continue;
        }
        let first = stack.iter().position(|part| matches!(part, FramePart::Generated(_)));
        let Some(first) = first else { panic!("no frame of Java's in {stack:x?}") };
        let java: Vec<_> = stack[first..]
            .iter()
            .map_while(|part| match part {
                FramePart::Generated(address) => Some(names.get(*address).unwrap_or("?")),
                _ => None,
            })
            .collect();
        let rest = &stack[first + java.len()..];
        assert!(
            rest.contains(&FramePart::Machine) && !rest.iter().any(|part| matches!(part, FramePart::Generated(_))),
            "{stack:x?}"
        );
        // The frames are those of even(20) to odd(1) or even(0), a leaf, calls(), the thread's functions, and the stub
        // that the virtual machine calls.
        assert!((3..=32).contains(&java.len()), "{java:?}");
        named += usize::from(assert_callers(&java));
    }
    assert!(options == ["-Xint"] || named > STACKS / 2, "{named} of {STACKS} have names {options:?}");
}

/// Asserts that the methods have the callers that the source has. Returns whether any method had a name.
fn assert_callers(java: &[&str]) -> bool {
    let method = |name: &str| {
        let name = name.split("Calls.").nth(1)?;
        Some(name.split('(').next()?.to_owned())
    };
    let mut any = false;
    for pair in java.windows(2) {
        let [Some(callee), caller] = [method(pair[0]), method(pair[1])] else { continue };
        any = true;
        let possible: &[&str] = match callee.as_str() {
            "evenLeaf" => &["even"],
            "oddLeaf" => &["odd"],
            "even" => &["odd", "calls"],
            "odd" => &["even"],
            _ => continue,
        };
        // Interpreted code and stubs have other names.
        let Some(caller) = caller else { continue };
        assert!(possible.contains(&caller.as_str()), "{callee} called by {caller}: {java:?}");
    }
    any
}

/// The Pythons on this machine (on the path, and pyenv's) that can generate trampolines for profilers.
fn pythons() -> Vec<PathBuf> {
    let names = ["python3", "python3.12", "python3.13", "python3.14", "python3.15"].map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let candidates = names.into_iter().chain(versions.map(|version| version.path().join("bin/python3")));
    let question = "import sys; assert hasattr(sys, 'activate_stack_trampoline'); print(sys.executable, end='')";
    let answer = |python: PathBuf| {
        let answer = Command::new(python).args(["-c", question]).output().ok()?;
        answer.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&answer.stdout).into_owned()))
    };
    let mut pythons: Vec<_> = candidates.filter_map(answer).collect();
    pythons.sort();
    pythons.dedup();
    pythons
}

/// Guarantees: at least 99.5 % of the stacks of Python with `-X perf` are complete, with all registers, or, for a
/// blocked thread, with only the stack pointer and the instruction pointer; the Python functions in each are those of
/// the source, from the running one to `<module>`.
#[test]
fn python_with_trampolines() {
    const STACKS: usize = 400;
    let text = "
import time
def leaf(n):
    s = 0
    for i in range(50): s += i * n
    return s
def middle(n): return leaf(n) + sum(map(leaf, range(3)))
def outer(n):
    time.sleep(0.0001)
    return max(middle(n), sorted([n, 1], key=middle)[0])
def work():
    while True: list(map(outer, (3, 4)))
print('\\n', end='', flush=True)
work()
";
    let script = script("trampolines.py", text);
    let pythons = pythons();
    if pythons.is_empty() {
        untested("there is no Python that has trampolines (3.12 or later)");
    }
    for python in pythons {
        let target = interpret(&python, &["-X", "perf"], &script);
        let mut cache = ObjectCache::default();
        let mut process = UnwoundProcess::open(target.pid(), &mut cache);
        let main = target.threads()[0];
        let mut stacks = Vec::new();
        let mut complete = 0;
        while stacks.len() < STACKS {
            let (mut snapshot, frames, outcome) = process.look_at_known_code(main, &mut cache);
            complete += usize::from(outcome.trust == Trust::Complete);
            if outcome.trust == Trust::Complete {
                let (passive, found) = process.unwind_passive(&mut snapshot);
                assert!(found.trust != Trust::Complete || passive == frames, "{passive:x?} instead of {frames:x?}");
            }
            stacks.push((kinds(&process, &frames), outcome.trust));
        }
        assert!(complete >= STACKS * 995 / 1000, "{complete} of {STACKS} {python:?}");
        let Some(names) = PerfMapNames::of(target.pid()) else { continue };
        std::fs::remove_file(format!("/tmp/perf-{}.map", target.pid())).expect("the map can be removed");
        for (stack, _) in stacks.iter().filter(|(_, trust)| *trust == Trust::Complete) {
            let functions = stack.iter().filter_map(|part| match part {
                FramePart::Generated(address) => Some(names.get(*address).expect("every function has a name")),
                _ => None,
            });
            let functions: Vec<_> = functions.filter_map(|name| name.split(':').nth(2)).collect();
            let whole = ["leaf", "middle", "outer", "work", "<module>"];
            let expected = whole.iter().rposition(|name| functions.first() == Some(name)).map(|at| &whole[at..]);
            assert_eq!(Some(&functions[..]), expected, "{python:?}");
        }
    }
}
