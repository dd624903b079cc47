//! Tests with programs that the tests compile, and with the real background threads.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profbridge_engine::component::{Outbox, Processor};
use profbridge_model::dictionary::{Location, Mapping};
use profbridge_model::{Builder, Profiles};
use profbridge_processor_symbolize::{NAMED, Symbolize, UNKNOWN};
use profbridge_wire::otlp;
use tempfile::TempDir;

use crate::support::*;

/// `work` is called and never inlined, so its position does not depend on the compiler.
const SOURCE: &str = "#include <unistd.h>
static volatile int sum;
static inline __attribute__((always_inline)) int inner(int n) { sum += n; return sum * 3; }
__attribute__((noinline)) int work(int n) {
  return inner(n) + 1;
}
int main(void) { char c = '.'; return write(1, &c, 1) < 0 || read(0, &c, 1) < 0 ? work(1) : work(2); }
";

/// A program in its own folder.
struct Program {
    folder: TempDir,
    build_id: &'static str,
}

impl Program {
    fn compile(build_id: &'static str) -> Self {
        Self::compile_with(build_id, &[])
    }

    fn compile_with(build_id: &'static str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app.c"), SOURCE).unwrap();
        let done = Command::new("cc")
            .current_dir(folder.path())
            .args(["-g", "-O1", "app.c", "-o", "app"])
            .args(options)
            .arg(format!("-Wl,--build-id=0x{build_id}"))
            .status()
            .unwrap();
        assert!(done.success());
        Self { folder, build_id }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("app")
    }

    fn run(&self, tool: &str, arguments: &[&str]) -> String {
        let done = Command::new(tool).current_dir(self.folder.path()).args(arguments).output().unwrap();
        assert!(done.status.success(), "{tool}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// The address of a function in the file.
    fn address(&self, function: &str) -> u64 {
        let symbols = self.run("nm", &["app"]);
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {function}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    }

    /// Starts the program, which runs until its standard input is closed. Waits for output first, because directly
    /// after exec the files may not be mapped yet.
    fn start(&self) -> Child {
        let mut child = Command::new(self.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }
}

/// A profile as a kernel profiler sends it over OTLP: base name and build id of the file, and an address in it.
fn request(program: &Program, pid: Option<u32>, executable: Option<&Path>, address: u64) -> Profiles {
    let whole = Mapping { memory_start: 0, memory_limit: 1 << 30, ..Mapping::default() };
    mapped(program, pid, executable, whole, address)
}

/// Like [`request`], for an address in a given mapping.
fn mapped(program: &Program, pid: Option<u32>, executable: Option<&Path>, mapping: Mapping, address: u64) -> Profiles {
    let mut builder = Builder::new();
    let mut process = Vec::new();
    process.extend(pid.map(|pid| ("process.pid", i64::from(pid).into())));
    let executable = executable.map(|path| path.to_str().unwrap());
    process.extend(executable.map(|path| ("process.executable.path", path.into())));
    builder.resource(&process);
    builder.on_cpu(20);
    let attributes = builder.attributes(&[("process.executable.build_id.gnu", program.build_id.into())]);
    let filename = builder.string("app");
    let mapping = builder.mapping(Mapping { filename, attributes, ..mapping });
    let attributes = builder.attributes(&[("profile.frame.type", "native".into())]);
    let location = builder.location(Location { mapping, address, attributes, ..Location::default() }, &[]);
    let stack = builder.stack(&[location]);
    builder.sample(stack, None, None, &[1, 2], &[]);
    let sent = otlp::encode(&builder.finish().unwrap(), &otlp::EncodeOptions::default());
    let mut received = otlp::decode(sent.into(), &otlp::Limits::default()).unwrap().profiles;
    received.peer = Some("127.0.0.1".into());
    received
}

/// Passes a batch to a processor and waits for the output.
fn through(symbolize: &mut Symbolize, batch: Profiles) -> Outbox {
    let started = Instant::now();
    let mut out = process(symbolize, batch, at(0));
    while out.telemetry.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "the batch is still held");
        std::thread::yield_now();
        // The deadline is not reached.
        symbolize.advance(at(1), &mut out);
    }
    out
}

/// The lines of the location, which must be the only one.
fn location_lines(out: &Outbox) -> Vec<String> {
    lines(&batches(out)[0]).remove(0).1
}

fn in_source(line: &str, function: &str) -> bool {
    line.starts_with(&format!("{function}@/")) && line.contains("/app.c:")
}

/// Guarantees: an address in a program, found by the path of its executable, gets function, file and line. The
/// resulting batch is a valid request with the same content.
#[test]
fn by_the_executables_path() {
    let program = Program::compile("00112233445566778899aabbccddeeff00112233");
    let mut symbolize = Symbolize::new(&settings(""));
    let address = program.address("work");
    let out = through(&mut symbolize, request(&program, None, Some(&program.path()), address));
    let found = location_lines(&out);
    assert!(found.iter().any(|line| in_source(line, "work")), "{found:?}");
    assert_eq!((note(&out, NAMED), note(&out, UNKNOWN)), (1, 0));
    let sent = otlp::encode(&batches(&out)[0], &otlp::EncodeOptions::default());
    let again = otlp::decode(sent.into(), &otlp::Limits::default()).unwrap().profiles;
    assert_eq!(lines(&again).remove(0).1, found);
    // The names are cached now.
    let at_once = process(&mut symbolize, request(&program, None, Some(&program.path()), address), at(0));
    assert_eq!(location_lines(&at_once), found);
}

/// Guarantees: a running process is enough, even if its executable was renamed.
#[test]
fn by_the_process() {
    let program = Program::compile("11112233445566778899aabbccddeeff00112233");
    let address = program.address("work");
    let mut child = program.start();
    let mut symbolize = Symbolize::new(&settings(""));
    let out = through(&mut symbolize, request(&program, Some(child.id()), None, address));
    drop(child.stdin.take());
    child.wait().unwrap();
    let found = location_lines(&out);
    assert!(found.iter().any(|line| in_source(line, "work")), "{found:?}");
}

/// Guarantees: an address in a process's memory, as in pprof, is named with the mapping that Linux reports: for
/// position-independent programs, for others, and for those in which LLD shifted code against its file offset. A debug
/// file, which lacks the file offsets of code, does not cause wrong names.
#[test]
fn by_the_memory_of_a_process() {
    for (number, options) in [&["-pie"][..], &["-no-pie"], &["-pie", "-Wl,-Ttext=0x53000"]].into_iter().enumerate() {
        let build_id = [
            "55550033445566778899aabbccddeeff",
            "55551133445566778899aabbccddeeff",
            "55552233445566778899aabbccddeeff",
        ];
        let program = Program::compile_with(build_id[number], options);
        let mut child = program.start();
        let path = program.path().canonicalize().unwrap();
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let rows = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
        let parse = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let rows: Vec<_> = rows
            .map(|line| {
                let fields: Vec<_> = line.split_whitespace().collect();
                let (start, limit) = fields[0].split_once('-').unwrap();
                (parse(start), parse(limit), parse(fields[2]))
            })
            .collect();
        // The first segment is mapped at the address of its first byte.
        let moved = if options[0] == "-pie" { rows[0].0 } else { 0 };
        let address = program.address("work") + moved;
        let row = rows.iter().find(|row| (row.0..row.1).contains(&address));
        let &(memory_start, memory_limit, file_offset) = row.unwrap_or_else(|| panic!("{address:#x} {maps}"));
        let mapping = Mapping { memory_start, memory_limit, file_offset, ..Mapping::default() };
        let mut symbolize = Symbolize::new(&settings(""));
        let out = through(&mut symbolize, mapped(&program, Some(child.id()), None, mapping, address));
        drop(child.stdin.take());
        child.wait().unwrap();
        let found = location_lines(&out);
        assert!(found.iter().any(|line| in_source(line, "work")), "{options:?} {found:?}");

        let folder = program.folder.path().join(format!("debug/.build-id/{}", &program.build_id[..2]));
        fs::create_dir_all(&folder).unwrap();
        let debug = folder.join(format!("{}.debug", &program.build_id[2..]));
        program.run("objcopy", &["--only-keep-debug", "app", debug.to_str().unwrap()]);
        let yaml = format!("{{processes: false, debug_folders: [{}]}}", program.folder.path().join("debug").display());
        let out = through(&mut Symbolize::new(&settings(&yaml)), mapped(&program, None, None, mapping, address));
        assert_eq!(location_lines(&out).len(), if moved == 0 { found.len() } else { 0 }, "{options:?}");
    }
}

/// Guarantees: with debug folders no process is needed, as in a gateway; with `processes: false` no process is
/// searched.
#[test]
fn by_a_folder_of_debug_files() {
    let program = Program::compile("22222233445566778899aabbccddeeff00112233");
    let address = program.address("work");
    let folder = program.folder.path().join("debug/.build-id/22");
    fs::create_dir_all(&folder).unwrap();
    let debug = folder.join("222233445566778899aabbccddeeff00112233.debug");
    program.run("objcopy", &["--only-keep-debug", "app", debug.to_str().unwrap()]);
    let yaml = |folder: &str| {
        format!("{{processes: false, debug_folders: [{}]}}", program.folder.path().join(folder).display())
    };
    let batch = || request(&program, None, Some(&program.path()), address);
    let found = location_lines(&through(&mut Symbolize::new(&settings(&yaml("debug"))), batch()));
    assert!(found.iter().any(|line| in_source(line, "work")), "{found:?}");
    let out = through(&mut Symbolize::new(&settings(&yaml("elsewhere"))), batch());
    assert_eq!((location_lines(&out).len(), note(&out, UNKNOWN)), (0, 1));
}

/// Guarantees: a file with another build id gives no names, and neither does a process of another machine.
/// rule: otlp-profiles#build-ids
#[test]
fn never_by_another_file() {
    let program = Program::compile("33332233445566778899aabbccddeeff00112233");
    let address = program.address("work");
    let other = Program { folder: tempfile::tempdir().unwrap(), build_id: "44442233445566778899aabbccddeeff00112233" };
    let out = through(&mut Symbolize::new(&settings("")), request(&other, None, Some(&program.path()), address));
    assert_eq!((location_lines(&out).len(), note(&out, UNKNOWN)), (0, 1));
    let mut remote = request(&program, None, Some(&program.path()), address);
    remote.peer = Some("192.0.2.1".into());
    let out = through(&mut Symbolize::new(&settings("")), remote);
    assert_eq!((location_lines(&out).len(), note(&out, UNKNOWN)), (0, 1));
}

/// Guarantees: in a real capture of an eBPF profiler, every non-native frame is unchanged, although the source of names
/// has answers for all addresses, and every native frame in a file gets a name.
/// rule: otlp-profiles#machine-code
#[test]
fn the_real_capture() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/otlp/ebpf-profiler.wire-1.10.otlp");
    let Ok(bytes) = fs::read(path) else {
        std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("untested here: ../shared/fixtures/otlp/ebpf-profiler.wire-1.10.otlp is absent\n"),
        )
        .ok();
        return;
    };
    let before = otlp::decode(bytes.into(), &otlp::Limits::default()).unwrap().profiles;
    let (mut symbolize, fake) = symbolize("");
    fake.set_all(profbridge_symbolizer::SymbolAnswer::Final(symbols("answered", None, 0)));
    let out = process(&mut symbolize, before.clone(), at(0));
    let after = &batches(&out)[0];
    let (mut native, mut others) = (0, 0);
    let dictionary = before.dictionary();
    for (location, (was, is)) in dictionary.tables().locations[1..].iter().zip(lines(&before).iter().zip(lines(after)))
    {
        let kind = match dictionary.find(location.attributes, "profile.frame.type") {
            Some(profbridge_model::Value::String(kind)) => dictionary.string(*kind),
            _ => "",
        };
        if kind == "native" {
            native += 1;
            assert_eq!(is.1, ["answered@:0"]);
        } else {
            others += 1;
            assert_eq!(*was, is, "{kind}");
        }
    }
    assert_eq!((native, others), (90, 210));
    assert_eq!(after.observations(), before.observations());
}
