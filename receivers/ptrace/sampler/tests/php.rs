//! Compares frames of real PHP programs with PHP's own backtraces, with every PHP that is found.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail like tests")]

mod observed;

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use observed::{InterpreterProgram, observe, untested};
use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::{Function, Location};
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::runtime::{Captured, Functions, MAX_FRAMES, TargetMemory, ThreadKey};

/// A program that waits in a stack with every kind of PHP function. Before that it prints this stack: a line for each
/// function with name, file and line, innermost first.
const PROGRAM: &str = r#"<?php
namespace Läden;

function stand()
{
    $trace = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
    $line = __LINE__; tell($trace, $line + 2);
    // The line of the call has to be a single one.
    \fread(STDIN, 1);
}

function tell($trace, $line)
{
    $at = [__FILE__, $line];
    $lines = ["fread\t\t0"];
    foreach ($trace as $entry) {
        $name = (isset($entry['class']) ? $entry['class'] . '::' : '') . $entry['function'];
        // The name of an included file is `{main}` here.
        $name = \strpos($name, 'include') === 0 || \strpos($name, 'require') === 0 ? '{main}' : $name;
        // A frame without a place is that of a native function.
        $lines[] = $name . "\t" . ($at ? $at[0] : '') . "\t" . ($at ? $at[1] : 0);
        $at = isset($entry['file']) ? [$entry['file'], $entry['line']] : null;
    }
    $lines[] = "{main}\t$at[0]\t$at[1]";
    echo \implode("\n", $lines), "\n\n";
}

class Korb
{
    public static $tiefe = 3;

    public function __get($name)
    {
        return sort_it();
    }

    public static function zähle($n)
    {
        return $n > 0 ? self::zähle($n - 1) : (new Korb)->gibt_es_nicht;
    }
}

trait Teil
{
    public function teil()
    {
        foreach (außen() as $value) {
            return $value;
        }
    }
}

class Ganzes
{
    use Teil;
}

function sort_it()
{
    $numbers = [3, 2];
    \usort($numbers, function ($a, $b) { \preg_replace_callback('/x/', '\Läden\ersetze', 'x'); return 0; });
}

function ersetze($found)
{
    return (new Ganzes)->teil();
}

function außen()
{
    yield from innen();
}

function innen()
{
    $object = new class { public function anonym() { return \call_user_func('\Läden\wirft'); } };
    yield $object->anonym();
}

function wirft()
{
    try {
        throw new \RuntimeException('weiter');
    } catch (\RuntimeException $e) {
        return eval("\n\nreturn include __DIR__ . '/included.php';");
    }
}

function los()
{
    Korb::zähle(Korb::$tiefe);
}

if (PHP_VERSION_ID >= 80100) {
    $fiber = new \Fiber('\Läden\los');
    $fiber->start();
} else {
    los();
}
"#;

const INCLUDED: &str = "<?php\n\n\\Läden\\stand();\n";

/// A program that creates and frees functions as fast as it can. Each has its number in the name of its file, in its
/// line and, in some versions, in its own name.
const THROWN_AWAY: &str = r#"<?php
$folder = dirname(__FILE__);
$body = '$x = 0; for ($k = 0; $k < 1500; $k++) { $x += $k; } return $x;';
for ($n = 1; $n <= 90; $n++) {
    $lines = str_repeat("\n", $n - 1);
    file_put_contents("$folder/thrown-$n.php", "<?php {$lines}return function () { $body };");
}
echo "ready\n";
for ($i = 0; ; $i++) {
    $n = $i % 90 + 1;
    $closure = include "$folder/thrown-$n.php";
    $closure();
    $closure();
    unset($closure);
    eval(str_repeat("\n", $n) . $body);
}
"#;

/// The PHP interpreters of this machine without thread safety, from 7.3 to 8.5, one for each version.
fn phps() -> BTreeMap<String, PathBuf> {
    let versions = ["7.3", "7.4", "8.0", "8.1", "8.2", "8.3", "8.4", "8.5"];
    let system = versions.map(|version| PathBuf::from(format!("/usr/bin/php{version}")));
    // More interpreters may be given by this variable.
    let named = std::env::var_os("PROFBRIDGE_TEST_PHPS").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let question = "echo PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION, ' ', (int) PHP_ZTS;";
    let answer = |php: PathBuf| {
        let answer = Command::new(&php).args(["-n", "-r", question]).output().ok()?;
        let said = String::from_utf8(answer.stdout).ok()?;
        let (version, threads) = said.trim().split_once(' ')?;
        (threads == "0" && versions.contains(&version)).then(|| (version.to_owned(), php))
    };
    let found: BTreeMap<_, _> =
        named.into_iter().chain([PathBuf::from("php")]).chain(system).filter_map(answer).collect();
    for version in versions.iter().filter(|version| !found.contains_key(**version)) {
        untested(&format!("there is no PHP {version}"));
    }
    found
}

fn started(php: &Path, folder: &Path, program: &str) -> InterpreterProgram {
    let path = folder.join("program.php");
    std::fs::write(&path, program).unwrap();
    std::fs::write(folder.join("included.php"), INCLUDED).unwrap();
    InterpreterProgram::start(Command::new(php).arg("-n").arg(path))
}

/// The lines that the program prints, up to an empty one.
fn lines(program: &mut InterpreterProgram) -> Vec<String> {
    let lines = program.output.by_ref().lines().map(Result::unwrap);
    lines.take_while(|line| !line.is_empty()).collect()
}

/// Waits until the process waits, and returns its frames: name, file and line.
fn frames_of(pid: u32, version: &str) -> Vec<String> {
    let files = ProcessFiles::open(pid).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap().starts_with("running") {
        assert!(Instant::now() < end, "it does not stand still");
    }
    let space = AddressSpace::load(&files, None, &mut ObjectCache::default()).unwrap();
    let found = space.runtimes().first().unwrap_or_else(|| panic!("PHP {version}: {:?}", space.faults()));
    let mut instance = found.instance();
    assert!(instance.held().unwrap().registers.is_some(), "PHP {version} was built in another way");
    let (mut target, mut captured, mut resolved) = (ProcessMemory(files), Captured::default(), Vec::new());
    let key = ThreadKey { id: pid, pointer: 0 };
    assert!(instance.capture(key, MAX_FRAMES, Instant::now(), &mut target, &mut captured));
    let mut functions = Functions::default();
    instance.resolve(&captured, true, &mut target, &mut functions, &mut resolved);
    let functions = functions.take_fresh().unwrap().1;
    let shown = resolved.iter().filter_map(|frame| match frame.location? {
        Location::Interpreted { function, line } => {
            let Function { name, file, .. } = &functions[function as usize];
            Some(format!("{name}\t{file}\t{line}"))
        }
        Location::Native { .. } | Location::Compiled { .. } => None,
    });
    shown.collect()
}

struct ProcessMemory(ProcessFiles);

impl TargetMemory for ProcessMemory {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read_memory(address, bytes) == bytes.len()
    }
}

/// Guarantees: for a program that waits, all frames equal PHP's own backtrace, with the same names, files and lines:
/// functions, methods, closures, native functions, callbacks through these, magic methods, methods of traits,
/// delegating generators, methods of anonymous classes, `eval`, included files, fibers.
#[test]
fn equal_to_the_backtrace() {
    for (version, php) in phps() {
        let folder = tempfile::tempdir().unwrap();
        let mut program = started(&php, folder.path(), PROGRAM);
        let told = lines(&mut program);
        let read = frames_of(program.child.id(), &version);
        // PHP prints the name of an anonymous class with a zero byte and its position in the source.
        let shown = |line: &String| match line.split_once('\0') {
            Some((class, rest)) => format!("{class}{}", &rest[rest.find("::").unwrap_or(0)..]),
            None => line.clone(),
        };
        let told: Vec<String> = told.iter().map(shown).collect();
        assert_eq!(read, told, "PHP {version}");
    }
}

/// A page that sends its answer and then waits.
const PAGE: &str = r#"<?php
class Page
{
    public function render()
    {
        return array_map(function ($x) { return $this->stand($x); }, [1]);
    }

    private function stand($x)
    {
        echo "ready";
        flush();
        // It outlives its master.
        sleep(120);
    }
}
(new Page)->render();
"#;

/// Encodes a FastCGI record (FastCGI specification, section 3.3).
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

/// Guarantees: the functions that a worker of FPM executes are read too.
#[test]
fn worker_of_fpm() {
    let fpms = ["7.3", "7.4", "8.0", "8.1", "8.2", "8.3", "8.4", "8.5"];
    let fpms = fpms.map(|version| (version, PathBuf::from(format!("/usr/sbin/php-fpm{version}"))));
    if fpms.iter().all(|(_, fpm)| !fpm.exists()) {
        untested("there is no php-fpm");
    }
    for (version, fpm) in fpms.iter().filter(|(_, fpm)| fpm.exists()) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("page.php"), PAGE).unwrap();
        let (socket, log) = (path("socket"), path("log"));
        let pool = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nuser = root\nlisten = {}\npm = static\npm.max_children = 1\n",
            log.display(),
            socket.display()
        );
        std::fs::write(path("fpm.conf"), pool).unwrap();
        let mut command = Command::new(fpm);
        command.args(["-n", "-R", "-y"]).arg(path("fpm.conf")).stderr(Stdio::null());
        let master = InterpreterProgram::start(&mut command);
        let end = Instant::now() + Duration::from_secs(60);
        let mut connection = loop {
            match UnixStream::connect(&socket) {
                Ok(connection) => break connection,
                Err(error) => assert!(Instant::now() < end, "{error}: {:?}", std::fs::read_to_string(&log)),
            }
            std::thread::yield_now();
        };
        let script = path("page.php").display().to_string();
        let parameter = |name: &str, value: &str| {
            let lengths = [name.len(), value.len()].map(|length| u8::try_from(length).unwrap());
            [&lengths[..], name.as_bytes(), value.as_bytes()].concat()
        };
        let parameters = [parameter("SCRIPT_FILENAME", &script), parameter("REQUEST_METHOD", "GET")].concat();
        let request = [record(1, &[0, 1, 0, 0, 0, 0, 0, 0]), record(4, &parameters), record(4, &[]), record(5, &[])];
        connection.write_all(&request.concat()).unwrap();
        let mut answer = Vec::new();
        while !answer.windows(5).any(|part| part == b"ready") {
            let mut bytes = [0; 512];
            let count = connection.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend(&bytes[..count]);
        }
        let pid = master.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let worker: u32 = children.split_whitespace().next().unwrap().parse().unwrap();
        let names: Vec<String> =
            frames_of(worker, version).iter().map(|frame| frame.split('\t').next().unwrap().to_owned()).collect();
        // The master is killed first: it would start another worker, which nothing would end.
        drop(master);
        Command::new("kill").args(["-KILL", &worker.to_string()]).status().unwrap();
        let closure = names.iter().position(|name| name.starts_with("Page::{closure")).unwrap();
        assert_eq!(closure, 2, "{names:?}");
        assert_eq!(names[..2], ["sleep", "Page::stand"], "PHP {version}");
        assert_eq!(names[3..], ["array_map", "Page::render", "{main}"], "PHP {version}");
    }
}

/// Guarantees: while functions are created and freed all the time, and their process is sampled a thousand times a
/// second, functions have their own names, files and lines or none.
#[test]
fn thrown_away() {
    for (version, php) in phps() {
        let folder = tempfile::tempdir().unwrap();
        let mut program = started(&php, folder.path(), THROWN_AWAY);
        let mut line = String::new();
        program.output.read_line(&mut line).unwrap();
        let mut right = 0;
        let observations = observe(program.child.id(), Duration::from_secs(3), |function, line| {
            let Function { name, file, line: first, .. } = function;
            let Some(number) = file.rsplit_once("thrown-").map(|(_, rest)| rest) else { return };
            let number: u32 = number.strip_suffix(".php").unwrap().parse().unwrap();
            // The first line of a script is where its code begins.
            let is_right = (line == number || line == 0)
                && (*first == number || (name == "{main}" && *first == 1))
                && (!name.contains(".php:") || name.ends_with(&format!("thrown-{number}.php:{number}}}")));
            assert!(is_right, "PHP {version}: {name} {file}:{line}, from {first} on");
            right += 1;
        });
        assert!(observations > 100, "PHP {version}: {observations} samples");
        std::io::stderr()
            .write_fmt(format_args!("PHP {version}: {observations} samples, {right} of them named\n"))
            .ok();
    }
}
