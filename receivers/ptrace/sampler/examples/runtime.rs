//! Reads the frames of a thread that does not run meanwhile, from its interpreter's memory, and prints them.
//!
//!     cargo run --features recordings --example runtime -- PID TID [RECORDING [names]]
//!
//! With a third argument, everything that was read is written to that file: `record.py` and its siblings in
//! `tests/recordings` make the recordings there in this way. With `names`, the names of all threads are read and no
//! frames. V8's frames are on the native stack, so the thread is stopped for its registers; the recording ends with the
//! outermost function of a file that is not Node's own.

#[cfg(target_os = "linux")]
#[path = "../tests/unwinding/snapshot.rs"]
#[allow(dead_code, clippy::expect_used, missing_docs, reason = "shared with the tests")]
mod snapshot;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::run()
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::time::Instant;

    use profbridge_sampler::address_space::{AddressSpace, ModuleKind};
    use profbridge_sampler::elf::ObjectCache;
    use profbridge_sampler::message::{Function, FunctionKind, Location};
    use profbridge_sampler::process_files::ProcessFiles;
    use profbridge_sampler::runtime::{
        Captured, CodePlace, Found, Functions, MAX_FRAMES, NativeStack, NativelyNamed, RecordedStack, Recording,
        TargetMemory, ThreadKey,
    };
    use profbridge_sampler::unwind::{Frame, Registers, StackMemory, Unwinder};

    use crate::snapshot::Snapshot;

    /// Records everything that is read from a process.
    struct Recorder<'a> {
        files: &'a ProcessFiles,
        recording: Recording,
    }

    impl TargetMemory for Recorder<'_> {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            let whole = self.files.read_memory(address, bytes) == bytes.len();
            if whole {
                self.recording.add(address, bytes);
            }
            whole
        }
    }

    #[allow(clippy::print_stdout, reason = "this is what it is for")]
    pub(crate) fn run() -> Result<(), Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [pid, thread, out @ ..] = arguments.as_slice() else {
            return Err("usage: runtime PID TID [RECORDING]".into());
        };
        let (pid, thread): (u32, u32) = (pid.parse()?, thread.parse()?);
        let files = ProcessFiles::open(pid)?;
        let space = AddressSpace::load(&files, None, &mut ObjectCache::default())?;
        for fault in space.faults() {
            println!("{}: {}", fault.path, fault.reason);
        }
        let found = space.runtimes().first().ok_or("no interpreter was found")?;
        let mut target = Recorder { files: &files, recording: found.recording(thread) };
        let mut functions = Functions::default();
        let locations = match found.kind() {
            _ if out.len() > 1 => names(found, &mut target)?,
            FunctionKind::V8 => native(found, &space, &mut target, &mut functions)?,
            _ => captured(found, &mut target, &mut functions)?,
        };
        functions.unknown(found.kind());
        let fresh = functions.take_fresh().map(|(_, fresh)| fresh).unwrap_or_default();
        println!("{:#x}", target.recording.version);
        for location in locations {
            let Location::Interpreted { function, line } = location else { continue };
            let Some(function) = fresh.get(function as usize) else { continue };
            println!("{} {}:{line}", function.name, function.file);
        }
        if let [out, ..] = out {
            std::fs::write(out, target.recording.to_bytes())?;
        }
        Ok(())
    }

    /// Prints what Python calls all threads of the process.
    #[allow(clippy::print_stdout, reason = "this is what it is for")]
    fn names(found: &Found, target: &mut Recorder<'_>) -> Result<Vec<Location>, Box<dyn Error>> {
        let (runtime, version) = found.state();
        let mut instance = Found::python(runtime, version, target)?.instance();
        for entry in std::fs::read_dir(format!("/proc/{}/task", target.files.pid()))? {
            let id = entry?.file_name().to_string_lossy().parse()?;
            let name = instance.thread_name(ThreadKey { id, pointer: 0 }, false, Instant::now(), target);
            println!("{id} {name:?}");
        }
        Ok(Vec::new())
    }

    /// The frames in the list that the interpreter itself keeps.
    fn captured(
        found: &Found,
        target: &mut Recorder<'_>,
        functions: &mut Functions,
    ) -> Result<Vec<Location>, Box<dyn Error>> {
        let Recording { runtime, version, thread, pointer, .. } = target.recording;
        // Detect the interpreter again, so that the reads of the detection are recorded too.
        let mut instance = match found.kind() {
            FunctionKind::Php => Found::php(runtime, version)?.instance(),
            FunctionKind::Ruby => Found::ruby(runtime, pointer, version)?.instance(),
            _ => Found::python(runtime, version, target)?.instance(),
        };
        let (mut captured, mut resolved) = (Captured::default(), Vec::new());
        let key = ThreadKey { id: thread, pointer: 0 };
        if !instance.capture(key, MAX_FRAMES, Instant::now(), target, &mut captured) {
            return Err("the thread has no frames".into());
        }
        instance.resolve(&captured, true, target, functions, &mut resolved);
        Ok(resolved.into_iter().filter_map(|frame| frame.location).collect())
    }

    /// The functions that the native frames execute.
    fn native(
        found: &Found,
        space: &AddressSpace,
        target: &mut Recorder<'_>,
        functions: &mut Functions,
    ) -> Result<Vec<Location>, Box<dyn Error>> {
        let thread = i32::try_from(target.recording.thread)?;
        let mut snapshot = Snapshot::take(target.files, thread, 256 << 10)?;
        let (frames, _) = snapshot.unwind(target.files, space, &mut Unwinder::new());
        let place = |address: u64| match space.find(address) {
            Some(module) if module.kind == ModuleKind::Generated => CodePlace::Generated,
            Some(module) if module.builtins.contains(&address.wrapping_sub(module.bias)) => CodePlace::Builtin,
            _ => CodePlace::Other,
        };
        let mut names = Functions::default();
        let whole = NativeStack { frames: &frames, place: &place };
        let named = name(found, whole, &mut snapshot.stack, &mut Unrecorded(target.files), &mut names);
        let fresh = names.take_fresh().map(|(_, fresh)| fresh).unwrap_or_default();
        let is_own = |location: &Location| match location {
            Location::Interpreted { function, .. } => fresh.get(*function as usize).is_some_and(is_own),
            Location::Native { .. } | Location::Compiled { .. } => false,
        };
        let last = named.locations.iter().rfind(|(_, location)| is_own(location));
        let (last, _) = last.ok_or("the thread executes no function of a file")?;
        let mut own: Vec<_> = frames
            .iter()
            .enumerate()
            .take(last + 1)
            .map(|(index, frame)| (*frame, place(frame.lookup(index))))
            .collect();
        // The last frame ends where its caller's frame begins, so the caller is recorded too. It is not named itself.
        let caller = frames
            .get(last + 1)
            .map(|caller| (Frame { registers: Registers::passive(caller.sp, 0), pc: 0, ..*caller }, CodePlace::Other));
        own.extend(caller);
        target.recording.add_native(&own);
        let stack = target.recording.native();
        // Tests also start at callers, as if they were the innermost frame; more is read of an innermost frame.
        for inner in (1..stack.frames.len()).rev() {
            named_of(found, &stack.without(inner), &mut snapshot.stack, target, &mut Functions::default());
        }
        Ok(named_of(found, &stack, &mut snapshot.stack, target, functions))
    }

    fn is_own(function: &Function) -> bool {
        function.file.starts_with('/')
    }

    fn named_of(
        found: &Found,
        stack: &RecordedStack,
        memory: &mut dyn StackMemory,
        target: &mut Recorder<'_>,
        functions: &mut Functions,
    ) -> Vec<Location> {
        let place = |address| stack.place(address);
        let mut words = StackRecorder { memory, words: Vec::new() };
        let native = NativeStack { frames: &stack.frames, place: &place };
        let named = name(found, native, &mut words, target, functions);
        for (address, word) in words.words {
            target.recording.add(address, &word.to_le_bytes());
        }
        named.locations.into_iter().map(|(_, location)| location).collect()
    }

    fn name(
        found: &Found,
        stack: NativeStack<'_>,
        memory: &mut dyn StackMemory,
        target: &mut dyn TargetMemory,
        functions: &mut Functions,
    ) -> NativelyNamed {
        let mut named = NativelyNamed::default();
        found.instance().name_native(stack, memory, target, functions, &mut named);
        named
    }

    /// A process whose reads are not recorded.
    struct Unrecorded<'a>(&'a ProcessFiles);

    impl TargetMemory for Unrecorded<'_> {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            self.0.read_memory(address, bytes) == bytes.len()
        }
    }

    /// Records everything that is read from a stack.
    struct StackRecorder<'a> {
        memory: &'a mut dyn StackMemory,
        words: Vec<(u64, u64)>,
    }

    impl StackMemory for StackRecorder<'_> {
        fn read_u64(&mut self, address: u64) -> Option<u64> {
            let word = self.memory.read_u64(address)?;
            self.words.push((address, word));
            Some(word)
        }
    }
}
