//! Tests of separate debug files: found by build id and by link, compressed or not, in various folders.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{One, address_of, build, frames, has, object_at, open, run, settings};
use profbridge_symbolizer::{
    DebugFileServer, FileIdentity, NamedBy, Object, ObjectKey, ObjectSource, Requested, Settings, SymbolAnswer,
    Symbolizer, Unknown,
};

/// A program, stripped, and its separate debug file.
struct Split {
    folder: tempfile::TempDir,
    stripped: PathBuf,
    debug: PathBuf,
    /// The address of `outer`.
    outer: u64,
    build_id: String,
}

/// Builds `inlined.c` and splits it. `None` if a tool is missing.
fn split(link: bool) -> Option<Split> {
    if !has("gcc") || !has("objcopy") || !has("readelf") {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    build("gcc", "inlined.c", &whole, &["-O2", "-g", "-Wl,--build-id=sha1"]);
    let outer = address_of(&whole, "outer");
    let debug = folder.path().join("stripped.debug");
    let stripped = folder.path().join("stripped");
    run("objcopy", [Path::new("--only-keep-debug"), &whole, &debug]);
    run("objcopy", [Path::new("--strip-all"), &whole, &stripped]);
    if link {
        let option = format!("--add-gnu-debuglink={}", debug.display());
        run("objcopy", [Path::new(&option), &stripped]);
    }
    let notes = run("readelf", [Path::new("-n"), &whole]);
    let build_id = notes.split("Build ID: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    fs::remove_file(&whole).unwrap();
    Some(Split { folder, stripped, debug, outer, build_id })
}

impl Split {
    /// The path for the debug file in a debug folder.
    fn place(&self, folder: &Path) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        folder.join(".build-id").join(first).join(format!("{rest}.debug"))
    }

    /// Moves the debug file to another place.
    fn move_debug(&self, to: &Path) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(&self.debug, to).unwrap();
    }

    /// Whether an answer has only what the stripped program itself contains about `outer`: its start.
    fn is_only_a_start(&self, answer: &SymbolAnswer) -> bool {
        let symbols = answer.symbols().filter(|symbols| symbols.named_by == NamedBy::UnwindTable);
        symbols.is_some_and(|symbols| symbols.frames[0].function.ends_with(&format!("+{:#x}", self.outer)))
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::from_hex(&self.build_id).unwrap()
    }
}

/// Name, file base name, and line of the outermost function.
fn outermost(answer: &SymbolAnswer) -> (String, String, u32) {
    let frame = frames(answer).last().unwrap_or_else(|| panic!("{answer:?}"));
    let file = frame.file.as_deref().unwrap_or_default();
    (frame.function.to_string(), file.rsplit('/').next().unwrap().to_owned(), frame.line)
}

fn is_outer(answer: &SymbolAnswer) {
    let (function, file, line) = outermost(answer);
    assert_eq!((&*function, &*file), ("outer", "inlined.c"));
    assert!(line > 0);
}

/// Guarantees: a debug file beside the program, or in `.debug`, is found by the link. So is one at the program's path
/// below a debug folder.
#[test]
fn by_debug_link() {
    for place in ["stripped.debug", ".debug/stripped.debug"] {
        let Some(split) = split(true) else { return };
        let to = split.folder.path().join(place);
        split.move_debug(&to);
        is_outer(&One::new(settings(), object_at(&split.stripped)).answer(split.outer));
    }
    let Some(split) = split(true) else { return };
    let folder = tempfile::tempdir().unwrap();
    let below = split.folder.path().strip_prefix("/").unwrap();
    split.move_debug(&folder.path().join(below).join("stripped.debug"));
    let settings = Settings { debug_folders: vec![folder.path().to_owned()], ..settings() };
    let one = One::new(settings, object_at(&split.stripped));
    is_outer(&one.answer(split.outer));
    assert_eq!(one.symbolizer.counters().debug_files, 1);
}

/// Guarantees: a debug file whose checksum differs from the link's is refused and counted.
#[test]
fn wrong_checksum() {
    let Some(split) = split(true) else { return };
    let mut bytes = fs::read(&split.debug).unwrap();
    bytes.push(0);
    fs::write(&split.debug, bytes).unwrap();
    let one = One::new(settings(), object_at(&split.stripped));
    assert!(split.is_only_a_start(&one.answer(split.outer)));
    assert_eq!(one.symbolizer.counters().debug_files_refused, 1);
}

/// Guarantees: a debug file is found by its build id in a configured folder. A file with another build id is refused
/// and counted.
#[test]
fn by_build_id() {
    let Some(split) = split(false) else { return };
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { debug_folders: vec![folder.path().to_owned()], ..settings() };
    split.move_debug(&split.place(folder.path()));
    let one = One::new(settings.clone(), object_at(&split.stripped));
    is_outer(&one.answer(split.outer));

    let other = folder.path().join("other");
    build("gcc", "inlined.c", &other, &["-O1", "-Wl,--build-id=0x0102030405060708"]);
    fs::rename(&other, split.place(folder.path())).unwrap();
    let one = One::new(settings, object_at(&split.stripped));
    assert!(split.is_only_a_start(&one.answer(split.outer)));
    assert_eq!(one.symbolizer.counters().debug_files_refused, 1);
}

/// Guarantees: for profiles from other machines, a debug file found only by build id supplies names and lines.
#[test]
fn only_a_build_id() {
    let Some(split) = split(false) else { return };
    let folder = tempfile::tempdir().unwrap();
    split.move_debug(&split.place(folder.path()));
    let settings = Settings { debug_folders: vec![folder.path().to_owned()], ..settings() };
    let object = Object { key: split.key(), source: ObjectSource::BuildId, root: None, path: String::new() };
    is_outer(&One::new(settings, object).answer(split.outer));
}

/// Guarantees: debug files and objects are found inside a process's root. Absolute symbolic links are relative to that
/// root, and nothing leads out of it.
#[test]
fn inside_a_root() {
    let Some(split) = split(true) else { return };
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy(&split.stripped, bin.join("stripped")).unwrap();
    // The same path exists outside of the root, without debug information.
    symlink("/bin/stripped", root.path().join("absolute")).unwrap();
    symlink("../../../../../../bin/stripped", root.path().join("relative")).unwrap();
    symlink(&split.stripped, root.path().join("outside")).unwrap();
    split.move_debug(&root.path().join("usr/lib/debug/bin/stripped.debug"));

    let object = |path: &str| Object {
        key: ObjectKey::Other(path.into()),
        source: ObjectSource::InRoot { root: Arc::new(open(root.path())), path: path.into() },
        root: None,
        path: path.to_owned(),
    };
    is_outer(&One::new(settings(), object("/bin/stripped")).answer(split.outer));
    for path in ["/absolute", "/relative", "/../../bin/stripped"] {
        // The link's folder is the root, so the object is found, but the debug file is not.
        let one = One::new(settings(), object(path));
        assert_ne!(one.answer(split.outer), SymbolAnswer::Unknown(Unknown::NoFile), "{path}");
    }
    for path in ["/outside", "/bin", "/nothing", "/proc/self/exe"] {
        let one = One::new(settings(), object(path));
        assert_eq!(one.answer(split.outer), SymbolAnswer::Unknown(Unknown::NoFile), "{path}");
        assert_eq!(one.symbolizer.counters().files_missing, 1);
    }
    // The object is an open file, with a root for its debug file.
    let object = Object {
        key: split.key(),
        source: ObjectSource::File(open(&split.stripped)),
        root: Some(Arc::new(open(root.path()))),
        path: "/bin/stripped".to_owned(),
    };
    is_outer(&One::new(settings(), object).answer(split.outer));
}

/// Guarantees: a path chosen by the profiled process does not open a debug file of this machine.
#[test]
fn a_targets_path_means_nothing_here() {
    let Some(split) = split(true) else { return };
    let object = Object {
        key: split.key(),
        source: ObjectSource::File(open(&split.stripped)),
        root: None,
        path: split.stripped.to_string_lossy().into_owned(),
    };
    let one = One::new(settings(), object);
    assert!(split.is_only_a_start(&one.answer(split.outer)));
}

/// Guarantees: a file that does not match the key is not read, whether the key is a build id or a file's identity.
#[test]
fn another_file_than_the_keys() {
    let Some(split) = split(false) else { return };
    let object = |key: ObjectKey| Object { key, ..object_at(&split.debug) };
    let identity = |path: &Path| ObjectKey::File(FileIdentity::of(&open(path)).unwrap());
    is_outer(&One::new(settings(), object(split.key())).answer(split.outer));
    is_outer(&One::new(settings(), object(identity(&split.debug))).answer(split.outer));
    for key in [ObjectKey::from_hex("00112233445566778899").unwrap(), identity(&split.stripped)] {
        let one = One::new(settings(), object(key));
        assert_eq!(one.answer(split.outer), SymbolAnswer::Unknown(Unknown::NoFile));
    }
}

/// Guarantees: compressed debug sections are read, with each compression that objcopy supports.
#[test]
fn compressed_sections() {
    for format in ["zlib-gabi", "zstd"] {
        let Some(split) = split(false) else { return };
        let compressed = split.folder.path().join("compressed");
        let option = format!("--compress-debug-sections={format}");
        let output =
            std::process::Command::new("objcopy").arg(option).arg(&split.debug).arg(&compressed).output().unwrap();
        if !output.status.success() {
            eprintln!("SKIPPED: objcopy has no {format}");
            continue;
        }
        assert!(run("readelf", [Path::new("-tW"), &compressed]).contains("COMPRESSED"), "{format}");
        is_outer(&One::new(settings(), object_at(&compressed)).answer(split.outer));
        // The limit applies to the decompressed size.
        let one = One::new(Settings { max_dwarf_bytes: 64, ..settings() }, object_at(&compressed));
        assert_eq!(outermost(&one.answer(split.outer)).2, 0);
        assert_eq!(one.symbolizer.counters().too_large, 1);
    }
}

/// Guarantees: for a file without DWARF the answer of the symbol table is final; with DWARF, no answer is final before
/// it was read.
#[test]
fn without_dwarf() {
    let Some(split) = split(false) else { return };
    let one = One::new(Settings { dwarf: false, ..settings() }, object_at(&split.debug));
    assert_eq!(outermost(&one.answer(split.outer)), ("outer".into(), String::new(), 0));
    assert_eq!(one.symbolizer.counters().dwarf, 0);
}

/// A server with one file, which arrives when the test says so.
#[derive(Debug)]
struct Slow {
    file: PathBuf,
    state: Mutex<Option<bool>>,
    asked: AtomicUsize,
}

impl DebugFileServer for Slow {
    fn request(&self, _: &[u8]) -> Requested {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match *self.state.lock().unwrap() {
            None => Requested::Coming { since: Duration::from_secs(1), idle: Duration::ZERO },
            Some(true) => Requested::Here(open(&self.file)),
            Some(false) => Requested::Missing,
        }
    }
}

impl Slow {
    fn one(split: &Split, object: Object, patience: Duration) -> (Arc<Self>, One) {
        let server = Arc::new(Self { file: split.debug.clone(), state: Mutex::new(None), asked: AtomicUsize::new(0) });
        let settings = Settings { patience, ..settings() };
        let symbolizer =
            Symbolizer::with_server(settings, Some(Arc::clone(&server) as Arc<dyn DebugFileServer>)).unwrap();
        let object = symbolizer.object(object);
        (server, One { symbolizer, object })
    }

    fn set(&self, here: bool) {
        *self.state.lock().unwrap() = Some(here);
    }
}

/// Waits until an answer is as expected.
fn until(one: &One, address: u64, is_right: impl Fn(&SymbolAnswer) -> bool) {
    let begin = std::time::Instant::now();
    while !is_right(&one.symbolizer.answer(one.object, address)) {
        assert!(begin.elapsed() < common::LIMIT, "{:?}", one.symbolizer.answer(one.object, address));
        std::thread::yield_now();
    }
}

/// Guarantees: while a debug file is being downloaded, an answer is not final but contains what is known. When the file
/// has arrived, the answer has its names.
#[test]
fn a_debug_file_from_elsewhere() {
    let Some(split) = split(false) else { return };
    let (server, one) = Slow::one(&split, object_at(&split.stripped), Duration::MAX);
    assert_eq!(one.symbolizer.ask(one.object, &[split.outer]), 1);
    until(&one, split.outer, |answer| split.is_only_a_start(answer));
    let answer = one.symbolizer.answer(one.object, split.outer);
    assert!(answer.is_late() && one.symbolizer.waiting() == 1, "{answer:?}");
    server.set(true);
    is_outer(&one.answer(split.outer));
    assert_eq!(one.symbolizer.counters().debug_files, 1);
}

/// Guarantees: answers wait for a download only as long as `patience`. A file that arrives later still improves them,
/// even for an object about which nothing else is known.
#[test]
fn a_late_debug_file() {
    let Some(split) = split(false) else { return };
    let (server, one) = Slow::one(&split, object_at(&split.stripped), Duration::from_millis(999));
    assert!(split.is_only_a_start(&one.answer(split.outer)));
    server.set(true);
    until(&one, split.outer, |answer| frames(answer).last().is_some_and(|frame| &*frame.function == "outer"));

    let object = Object { key: split.key(), source: ObjectSource::BuildId, root: None, path: String::new() };
    let (server, one) = Slow::one(&split, object, Duration::from_millis(999));
    assert_eq!(one.answer(split.outer), SymbolAnswer::Unknown(Unknown::NoFile));
    server.set(true);
    until(&one, split.outer, |answer| frames(answer).last().is_some_and(|frame| frame.line > 0));
}

/// Guarantees: a file that never arrives, or has another build id, changes nothing and is not requested repeatedly. For
/// an object that contains debug information, no request is made.
#[test]
fn no_debug_file_from_elsewhere() {
    let Some(split) = split(false) else { return };
    let (server, one) = Slow::one(&split, object_at(&split.stripped), Duration::MAX);
    server.set(false);
    assert!(split.is_only_a_start(&one.answer(split.outer)));
    let asked = server.asked.load(Ordering::Relaxed);
    one.answer(split.outer + 1);
    assert_eq!(server.asked.load(Ordering::Relaxed), asked);

    fs::copy(&split.debug, split.folder.path().join("whole")).unwrap();
    build("gcc", "inlined.c", &split.debug, &["-g", "-Wl,--build-id=0x0102030405060708"]);
    let (server, one) = Slow::one(&split, object_at(&split.stripped), Duration::MAX);
    server.set(true);
    assert!(split.is_only_a_start(&one.answer(split.outer)));
    assert_eq!(one.symbolizer.counters().debug_files_refused, 1);
    let (server, one) = Slow::one(&split, object_at(&split.folder.path().join("whole")), Duration::MAX);
    is_outer(&one.answer(split.outer));
    assert_eq!(server.asked.load(Ordering::Relaxed), 0);
}
