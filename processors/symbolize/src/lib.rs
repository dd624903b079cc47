//! The processor `symbolize`: gives native frames the names that they came without.
//!
//! Profilers in the kernel (the eBPF profiler) send machine code as addresses in files, and Sentry shows no name for
//! any of them. The names are in the files: in their ELF symbol tables and their DWARF. See `README.md` for the options
//! and guarantees.
//!
//! The processor itself is pure. It picks the addresses out of a batch (`queries`), holds the batch for a moment
//! (`hold`) and writes into it what became known (`answers`). Who knows is behind the trait [`Names`]: in
//! production [`Background`], whose threads find, check and read files, so that nothing here waits for a disk.
//!
//! It stands behind `dedup`, since the same profile may be named better when it is sent again, and would then not look
//! like a resend; and before `chunk`, whose windows store each name once.

mod answers;
mod background;
mod config;
mod hold;
mod names;
mod queries;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::config::{Problems, Section};
use profbridge_engine::registry::{Description, PROFILES, ProcessorFactory};
use profbridge_model::Telemetry;

use self::hold::Hold;

pub use self::background::Background;
pub use self::config::{Config, Settings};
pub use self::names::{Address, FileId, MappedFile, Names, Process};

/// Note: locations that got a name.
pub const NAMED: &str = "named_locations";
/// Note: locations that went on before all was known about them: without a name, or without file and line.
pub const LATE: &str = "late_locations";
/// Note: locations of machine code for which there is no name: their file was not found or has none for the address.
pub const UNKNOWN: &str = "unknown_locations";
/// Note: attempts to bring a debug file from a server that failed, other than since nobody has it.
pub const DEBUG_FILES_FAILED: &str = "debug_files_failed";
/// Note: batches that went on before their time, because a bound was reached or memory was short.
pub const RELEASED_EARLY: &str = "released_early";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    // What is sent again may be named better by then, and would no longer look like a resend.
    description: Description::processor(
        "symbolize",
        "names native frames by the symbols and debug information of their files",
        PROFILES,
    )
    .behind(&["dedup", "link_spans"]),
    create: |section, _identity| create(section),
};

fn create(section: &Section) -> Result<Box<dyn Processor>, Problems> {
    let settings = section.extract::<Config>()?.check(section)?;
    Ok(Box::new(Symbolize::new(&settings)))
}

/// The processor.
pub struct Symbolize {
    hold: Hold,
}

impl Symbolize {
    /// A processor that holds nothing yet. Its threads start with the first address.
    pub fn new(settings: &Settings) -> Self {
        Self::with_names(settings, Box::new(Background::new(settings)))
    }

    /// A processor that asks somebody else.
    pub fn with_names(settings: &Settings, names: Box<dyn Names>) -> Self {
        Self { hold: Hold::new(settings, names) }
    }
}

impl Processor for Symbolize {
    fn fit_memory(&mut self, limit: u64) {
        self.hold.fit_memory(limit);
    }

    fn is_absorbing(&self) -> bool {
        self.hold.is_over_full()
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Profiles(profiles) => self.hold.take(profiles, now, out),
            // Spans have no addresses. An envelope is one unit of delivery, and what is in it was named where it was
            // made.
            other => out.send(other),
        }
    }

    fn due(&self) -> Option<u64> {
        self.hold.due()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        self.hold.advance(now, out);
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.hold.release(true, out)
    }

    fn flush(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.hold.release(false, out)
    }

    fn held(&self) -> Held {
        self.hold.held()
    }
}
