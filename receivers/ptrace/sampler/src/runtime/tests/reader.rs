//! Reads interpreters from recordings, and tests the guarantees that hold for every interpreter with frames in its own
//! memory.

use std::time::{Duration, Instant};

use super::{Changing, CountingTarget, Recording};
use crate::message::{Function, Location};
use crate::runtime::{
    Captured, Executed, Functions, Instance, MAX_FILE, MAX_FRAMES, MAX_NAME, Resolved, TargetMemory, ThreadKey,
    UNKNOWN_FUNCTION,
};

/// Recordings of one program for each interpreter, in all versions (`tests/recordings/program.py` and so on).
pub(in crate::runtime) const PYTHON: [&str; 11] =
    ["3.8", "3.9", "3.10", "3.11", "3.11-static", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.14t-thread"];
pub(in crate::runtime) const PHP: [&str; 6] =
    ["php-7.4", "php-8.2", "php-8.2-opcache", "php-8.3", "php-8.4", "php-8.5"];
pub(in crate::runtime) const RUBY: [&str; 5] = ["ruby-3.0", "ruby-3.1", "ruby-3.2", "ruby-3.3", "ruby-3.4"];

/// How long after a sample its frames are read.
const LATER: Duration = Duration::from_secs(1);

/// The contents of a file in `tests/recordings`.
pub(in crate::runtime) fn recorded_file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/recordings/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

pub(in crate::runtime) fn recording(name: &str) -> Recording {
    Recording::parse(&recorded_file(&format!("{name}.bin"))).unwrap()
}

/// The recordings with these names, each with a reader that has read nothing yet.
pub(in crate::runtime) fn recorded<'a>(names: &'a [&'a str]) -> impl Iterator<Item = (&'a str, Recording, Reader)> {
    names.iter().map(|name| {
        let mut recording = recording(name);
        let reader = Reader::new(&mut recording).unwrap();
        (*name, recording, reader)
    })
}

/// An interpreter, and the functions read so far.
pub(in crate::runtime) struct Reader {
    pub(in crate::runtime) instance: Box<dyn Instance>,
    pub(in crate::runtime) functions: Functions,
    pub(in crate::runtime) known: Vec<Function>,
    pub(in crate::runtime) now: Instant,
    pub(in crate::runtime) captured: Captured,
    pub(in crate::runtime) resolved: Vec<Resolved>,
}

/// Name, file and line of a frame.
pub(in crate::runtime) type FrameText = (String, String, u32);

impl Reader {
    /// Creates a reader that has not read anything yet; `None` if there is no interpreter.
    pub(in crate::runtime) fn new(recording: &mut Recording) -> Option<Self> {
        Some(Self {
            instance: recording.found().ok()?.instance(),
            functions: Functions::default(),
            known: Vec::new(),
            now: Instant::now(),
            captured: Captured::default(),
            resolved: Vec::new(),
        })
    }

    pub(in crate::runtime) fn key(recording: &Recording) -> ThreadKey {
        ThreadKey { id: recording.thread, pointer: recording.pointer }
    }

    /// Reads the frames of a recording's thread, at most `limit` one by one. Returns the number of reads; `None` if
    /// there are no frames.
    pub(in crate::runtime) fn capture(&mut self, recording: &mut Recording, limit: usize) -> Option<usize> {
        let key = Self::key(recording);
        let mut counted = CountingTarget { target: recording, reads: 0 };
        let found = self.instance.capture(key, limit, self.now, &mut counted, &mut self.captured);
        found.then_some(counted.reads)
    }

    /// Reads a stack, a minute after the last one. With `has_not_run`, the thread is stopped; otherwise it was sampled
    /// a second ago.
    pub(in crate::runtime) fn read(&mut self, recording: &mut Recording, has_not_run: bool) -> Vec<FrameText> {
        self.instance.sampled(None, self.now);
        self.now += Duration::from_secs(60);
        let sampled = (!has_not_run).then(|| self.now - LATER);
        self.read_of(recording, sampled)
    }

    /// The same for a sample taken at `sampled`, whose thread has run since; `None` if the thread is stopped.
    pub(in crate::runtime) fn read_of(
        &mut self,
        recording: &mut Recording,
        sampled: Option<Instant>,
    ) -> Vec<FrameText> {
        if self.capture(recording, MAX_FRAMES).is_none() {
            return Vec::new();
        }
        self.instance.sampled(sampled, self.now);
        self.resolve(recording, sampled.is_none())
    }

    /// Resolves the frames that were read.
    pub(in crate::runtime) fn resolve(&mut self, target: &mut dyn TargetMemory, has_not_run: bool) -> Vec<FrameText> {
        self.instance.resolve(&self.captured, has_not_run, target, &mut self.functions, &mut self.resolved);
        assert_eq!(self.resolved.len(), self.captured.frames.len());
        let locations: Vec<Location> = self.resolved.iter().filter_map(|frame| frame.location).collect();
        locations.into_iter().map(|location| self.text(location)).collect()
    }

    pub(in crate::runtime) fn function(&mut self, location: Location) -> Function {
        if let Some((first, fresh)) = self.functions.take_fresh() {
            assert_eq!(first as usize, self.known.len());
            self.known.extend(fresh);
        }
        let Location::Interpreted { function, .. } = location else { panic!("{location:?}") };
        self.known[function as usize].clone()
    }

    /// The name, file and line of a location.
    pub(in crate::runtime) fn text(&mut self, location: Location) -> FrameText {
        let Location::Interpreted { line, .. } = location else { return FrameText::default() };
        let Function { name, file, .. } = self.function(location);
        (name, file, line)
    }

    /// The function at an address, and whether others share its instructions.
    pub(in crate::runtime) fn executed(
        &mut self,
        address: u64,
        target: &mut dyn TargetMemory,
    ) -> Option<(FrameText, bool)> {
        let Executed { resolved, shared, .. } = self.instance.executed(address, target, &mut self.functions)?;
        Some((self.text(resolved.location?), shared))
    }

    fn is_unknown(&self, frame: usize, text: &FrameText) -> bool {
        self.resolved[frame].unknown && (text.0.as_str(), text.2) == (UNKNOWN_FUNCTION, 0)
    }
}

/// If other code has replaced the code of a frame, the function of a thread that has run since is unknown, and never
/// has the other's name; the next sample has the new name, and so does a stopped thread at once. `name_at` returns the
/// address of the pointer to the name, given the address of the code.
pub(in crate::runtime) fn check_replaced_code(
    names: &[&str],
    (inner, other): (usize, usize),
    name_at: impl Fn(&mut Recording, u64) -> u64,
) {
    for (name, whole, _) in recorded(names) {
        for has_not_run in [false, true] {
            let mut recording = whole.clone();
            let mut reader = Reader::new(&mut recording).unwrap();
            let before = reader.read(&mut recording, true);
            let code = reader.captured.frames[inner].code;
            let [to, from] = [inner, other].map(|at| name_at(&mut recording, reader.captured.frames[at].code));
            let mut pointer = [0; 8];
            assert!(recording.read(from, &mut pointer));
            recording.add(to, &pointer);
            let method = |text: &FrameText| text.0.rsplit(['\\', '#', '.', ':']).next().unwrap().to_owned();
            let now = reader.read(&mut recording, has_not_run);
            assert_eq!(reader.is_unknown(inner, &now[inner]), !has_not_run, "{name}: {now:?}");
            for (at, frame) in reader.captured.frames.iter().enumerate() {
                if frame.code != code {
                    assert_eq!(now[at], before[at], "{name}");
                } else if !reader.resolved[at].unknown {
                    assert_eq!(method(&now[at]), method(&before[other]), "{name}");
                }
            }
            assert_eq!(method(&reader.read(&mut recording, false)[inner]), method(&before[other]), "{name}");
        }
    }
}

/// If other code replaces the code of a frame while it is read, name, file and line all belong to the replaced code, or
/// the function is unknown. With `other`, the name and the file may also be those of that frame. `replace` changes
/// memory, given the reader of the whole stack.
pub(in crate::runtime) fn check_code_replaced_during_reads(
    names: &[&str],
    inner: usize,
    other: Option<usize>,
    replace: impl Fn(&Reader, &mut Recording),
) {
    for (name, before, mut reader) in recorded(names) {
        let whole = reader.read(&mut before.clone(), true);
        let mut after = before.clone();
        replace(&reader, &mut after);
        let (mut unknown, mut own) = (0, 0);
        Changing::at_all_moments(&before, &after, |changing| {
            let mut new = Reader::new(&mut before.clone()).unwrap();
            new.capture(&mut before.clone(), MAX_FRAMES).unwrap();
            let text = new.resolve(changing, false).swap_remove(inner);
            let at = changing.at;
            if new.is_unknown(inner, &text) {
                unknown += 1;
            } else if let Some(other) = other.filter(|other| text.0 == whole[*other].0) {
                assert_eq!(text.1, whole[other].1, "{name}, at {at}");
            } else {
                assert_eq!(text, whole[inner], "{name}, at {at}");
                own += 1;
            }
        });
        assert!(unknown > 0 && own > 0, "{name}: {unknown}, {own}");
    }
}

fn all() -> impl Iterator<Item = (&'static str, Recording, Reader)> {
    recorded(&PYTHON).chain(recorded(&PHP)).chain(recorded(&RUBY))
}

/// Guarantees: if any word that is read is flipped, zeroed, huge or points to itself, nothing panics, the number of
/// frames is bounded, and texts are within their limits.
#[test]
fn attack_words() {
    for (name, whole, _) in all() {
        for (at, mut recording) in whole.hostile() {
            let Some(mut reader) = Reader::new(&mut recording) else { continue };
            let frames = reader.read(&mut recording, at % 16 == 0);
            assert!(frames.len() <= MAX_FRAMES, "{name}");
            assert!(frames.iter().all(|(function, file, _)| function.len() <= MAX_NAME && file.len() <= MAX_FILE));
            if let Some(frame) = reader.captured.frames.first().copied() {
                reader.executed(frame.instruction, &mut recording);
            }
        }
    }
}

/// Guarantees: reading a stack while its thread is stopped takes a few reads, whatever its depth; in Python up to 3.10,
/// where frames are not adjacent, one per frame.
#[test]
fn few_reads() {
    for (name, mut recording, mut reader) in all() {
        reader.read(&mut recording, true);
        let most = match name {
            "3.8" | "3.9" => 11,
            "3.10" => 22,
            // A recording has only the memory that was read, so some reads of adjacent frames fail at first.
            _ if name.starts_with("php") => 16,
            // The thread, its id, the context, frames and values, and environments kept by closures.
            _ if name.starts_with("ruby") => 20,
            _ => 10,
        };
        let reads = reader.capture(&mut recording, MAX_FRAMES).unwrap();
        assert!(reads <= most, "{name}: {reads} reads");
    }
}

/// Guarantees: code that may be freed at any time counts as known before a sample only if it was read before the sample
/// was taken, also if samples are processed long after they were taken.
#[test]
fn known_before_a_sample() {
    for (name, mut recording, mut reader) in all() {
        let start = reader.now;
        let at = |seconds| start + Duration::from_secs(seconds);
        // PHP frees only closures, scripts and evaluated code: this is a closure.
        let frame = if name.starts_with("php") { 6 } else { 1 };
        // The first three samples were taken before the code was read; one of them was processed late.
        let samples = [(Some(59), 60, true), (Some(59), 62, true), (Some(61), 63, true), (Some(63), 64, false)];
        for (sampled, now, is_fresh) in samples.into_iter().chain([(None, 65, false)]) {
            reader.now = at(now);
            reader.read_of(&mut recording, sampled.map(at));
            let code = reader.captured.frames[frame].code;
            assert_eq!(reader.instance.is_fresh(code), is_fresh, "{name}, at {now}");
        }
    }
}

/// Guarantees: a thread that the interpreter does not know has no frames. PHP without thread safety has only one stack.
#[test]
fn unknown_thread() {
    for (name, mut recording, mut reader) in recorded(&PYTHON).chain(recorded(&RUBY)) {
        assert!(!reader.read(&mut recording, true).is_empty(), "{name}");
        recording.thread = 77;
        assert_eq!(reader.read(&mut recording, true), [], "{name}");
    }
}
