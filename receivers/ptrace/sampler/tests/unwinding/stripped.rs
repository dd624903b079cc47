//! Compares stacks of programs without unwind tables with the same stacks of programs with them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use profbridge_sampler::address_space::{AddressSpace, CodeMemory, FileId, MapsEntry, ProcessView};
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::Trust;
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::unwind::{Frame, Unwinder};

use crate::snapshot::UnwoundProcess;
use crate::target::{ComputingTarget, compile, found, untested};

/// A process in which one file is replaced by a copy without unwind tables.
struct Stripped<'a> {
    files: &'a ProcessFiles,
    path: &'a str,
    without: &'a Path,
}

impl ProcessView for Stripped<'_> {
    fn maps(&self) -> io::Result<Vec<u8>> {
        ProcessView::maps(self.files)
    }

    fn executable(&self) -> Option<FileId> {
        self.files.executable()
    }

    fn open(&self, entry: &MapsEntry) -> io::Result<File> {
        let same = entry.path == self.path.as_bytes();
        if same { File::open(self.without) } else { ProcessView::open(self.files, entry) }
    }

    fn memory(&self) -> io::Result<Arc<dyn CodeMemory>> {
        self.files.memory()
    }
}

/// Copies a file without its unwind tables. `None` if `objcopy` is missing.
fn strip(path: &str) -> Option<PathBuf> {
    let name = Path::new(path).file_name()?.to_str()?;
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-without-tables-{name}", std::process::id()));
    let mut command = Command::new("objcopy");
    command.args(["--strip-all", "-R", ".eh_frame", "-R", ".eh_frame_hdr", path]).arg(&place);
    command.status().is_ok_and(|status| status.success()).then_some(place)
}

/// The numbers of stacks without tables: all, complete ones, guessed ones, and complete ones that differ from those
/// with tables.
#[derive(Debug, Default)]
struct StackCounts {
    stacks: usize,
    complete: usize,
    guessed: usize,
    wrong: usize,
}

/// Unwinds threads of a target with the tables of one of its files and without them, and compares the stacks.
fn compare(target: &ComputingTarget, path: &str, count: usize) -> Option<StackCounts> {
    let without = strip(path)?;
    let mut process = UnwoundProcess::open(target.pid(), &mut ObjectCache::default());
    let mut counts = StackCounts::default();
    let mut unwinder = Unwinder::new();
    let mut bare = bare(&process, path, &without);
    while counts.stacks < count {
        target.run_on();
        for thread in target.threads() {
            let (mut snapshot, frames, outcome) = process.look(thread);
            if outcome.unknown_code.is_some() {
                process.reload(&mut ObjectCache::default());
                bare = self::bare(&process, path, &without);
                continue;
            }
            let mut found: Vec<Frame> = Vec::new();
            let by_code = unwinder.unwind(&bare, &snapshot.registers, &mut snapshot.stack, &mut found);
            counts.stacks += 1;
            counts.guessed += usize::from(by_code.trust == Trust::Guessed);
            if by_code.trust == Trust::Complete {
                counts.complete += 1;
                let pcs = |frames: &[Frame]| frames.iter().map(|frame| frame.pc).collect::<Vec<_>>();
                if pcs(&found) != pcs(&frames) && outcome.trust == Trust::Complete {
                    counts.wrong += 1;
                    if counts.wrong == 1 {
                        let texts = [&found, &frames].map(|frames| format!("{:x?}", pcs(frames)));
                        io::Write::write_fmt(&mut io::stderr(), format_args!("{}\nis {}\n", texts[0], texts[1])).ok();
                    }
                }
            }
        }
    }
    std::fs::remove_file(without).ok();
    Some(counts)
}

fn bare(process: &UnwoundProcess, path: &str, without: &Path) -> AddressSpace {
    let view = Stripped { files: &process.files, path, without };
    AddressSpace::load(&view, None, &mut ObjectCache::default()).expect("its maps can be read")
}

/// Guarantees: if analysis of code without tables finds a complete stack, it is always the one that the tables give:
/// for code compiled for size and for speed, with and without frame pointers, linked statically and dynamically. At
/// least 90 % of the stacks of functions of all shapes are complete.
#[test]
fn code_proves_callers() {
    for (place, flags) in [
        &["-Os"][..],
        &["-O2"],
        &["-O1", "-fno-stack-protector"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-O0"],
        &["-Os", "-static"],
        &["-O3", "-fcf-protection=full"],
    ]
    .into_iter()
    .enumerate()
    {
        let program = compile("shapes.c", &format!("shapes{place}"), flags);
        let path = program.canonicalize().expect("the program is there");
        let target = ComputingTarget::start(&path, &[]);
        let Some(counts) = compare(&target, path.to_str().expect("a plain path"), 1000) else {
            return untested("there is no objcopy");
        };
        std::fs::remove_file(&path).expect("the program is there");
        eprintln!("{counts:?} {flags:?}");
        assert_eq!(counts.wrong, 0, "{counts:?} {flags:?}");
        assert!(counts.complete >= counts.stacks * 9 / 10, "{counts:?} {flags:?}");
    }
}

/// Guarantees: at least 99 % of the stacks of busybox, which is linked statically and has neither symbols nor unwind
/// tables, are complete: both of its shell, which recurses through function tables and reserves stack space of any
/// size, and of its awk, which never returns to its first function.
#[test]
fn busybox() {
    let Some(busybox) = found("busybox") else { return };
    let shell = "f() { local i=$1; while [ $i -lt 100 ]; do i=$((i+1)); case $i in *7) y=${i%7};; esac; done; }; echo; while :; do f 3; done";
    let awk = "BEGIN{print \"\"; fflush(); while(1) {x=x+1; s=substr(1 x,2); gsub(/b/,2,s); a[x%100]=s}}";
    for arguments in [["sh", "-c", shell].as_slice(), &["awk", awk]] {
        let target = ComputingTarget::start(&busybox, arguments);
        let mut process = UnwoundProcess::open(target.pid(), &mut ObjectCache::default());
        let thread = target.threads()[0];
        let complete = (0..500).filter(|_| process.look(thread).2.trust == Trust::Complete).count();
        assert!(complete >= 495, "{complete} of 500 {}", arguments[0]);
    }
}
