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

use profbridge_engine::registry::{Description, PROFILES, ProcessorFactory};

pub use self::background::Background;
pub use self::config::{Config, Settings};
pub use self::hold::Symbolize;
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
    create: |section, _| Ok(Box::new(Symbolize::new(&section.extract::<Config>()?.check(section)?))),
};
