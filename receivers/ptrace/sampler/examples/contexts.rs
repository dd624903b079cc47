//! Reads the context that a process publishes in its memory, and that of one of its threads, and prints how long the
//! reads take.
//!
//!     cargo run --release --example contexts -- PID POINTER [KEY...]
//!
//! POINTER is the thread's pointer (`pthread_self`, Python's `threading.get_ident`), and the thread should not run
//! meanwhile. KEY is a thread attribute to be read. `tests/targets/contexts.c` is a suitable target.

use std::time::{Duration, Instant};

use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::context::{Place, RecordReading, publication, read};
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::runtime::TargetMemory;

/// How often a thread is read.
const ROUNDS: u32 = 100_000;

#[allow(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, pointer, keys @ ..] = arguments.as_slice() else {
        return Err("usage: contexts PID POINTER [KEY...]".into());
    };
    let (pid, pointer): (u32, u64) = (pid.parse()?, pointer.parse()?);
    let files = ProcessFiles::open(pid)?;
    let mut target = &files;
    let space = AddressSpace::load(&files, None, &mut ObjectCache::default())?;
    let address = *space.publications().first().ok_or("it shows no process context")?;
    let published = publication(address, &mut target)?;
    println!("resource: {:?}", published.resource);
    let schema = published.schema(keys).ok_or("the layout of its thread records is unknown")?;
    for variable in space.variables() {
        let Some(place) = variable.place(&mut target) else { continue };
        println!("{place:x?}");
        let once = |block: &mut u64, target: &mut dyn TargetMemory| {
            let at = place.address(pointer, block, target)?;
            match read(at, schema.wants_attributes(), target) {
                RecordReading::Record(record) => schema.context(&record),
                RecordReading::None | RecordReading::Torn => None,
            }
        };
        let mut known = 0;
        println!("{:x?}", once(&mut known, &mut target));
        let known_place = timed(|| drop(once(&mut known, &mut target)));
        println!("with a known place: {known_place:?} each");
        if matches!(place, Place::Block { .. }) {
            println!("with the thread's block looked up: {:?} each", timed(|| drop(once(&mut 0, &mut target))));
        }
    }
    Ok(())
}

/// The median time of one call, over ten series.
fn timed(mut once: impl FnMut()) -> Duration {
    let mut series: Vec<Duration> = (0..10)
        .map(|_| {
            let begun = Instant::now();
            (0..ROUNDS / 10).for_each(|_| once());
            begun.elapsed() / (ROUNDS / 10)
        })
        .collect();
    series.sort_unstable();
    series[5]
}
