//! The processor `symbolize`: adds names to native frames that were received without names.
//!
//! Profilers in the kernel (the eBPF profiler) send native frames as addresses in files, and Sentry shows no names for
//! them. The names are in the files: in ELF symbol tables and DWARF. See `README.md` for the options and guarantees.
//!
//! The processor itself has no side effects. It collects the addresses in a batch (`queries`), buffers the batch for a
//! short time (`processor`) and writes the results into it (`answers`). The trait [`NameSource`] provides the results:
//! in production [`Background`], whose threads find, verify and read files, so that the pipeline never waits for a
//! disk.
//!
//! The processor must come after `dedup`, since a resent profile may get better names and would then not look like a
//! resend. It must come before `chunk`, whose windows store each name once.

mod answers;
mod background;
mod config;
mod names;
mod processor;
mod queries;

use profbridge_engine::registry::{Description, PROFILES, ProcessorFactory};

pub use self::background::Background;
pub use self::config::{Config, Settings};
pub use self::names::{CodeAddress, FileId, MappedFile, MappingProcess, NameSource};
pub use self::processor::Symbolize;

/// Note: locations that got a name.
pub const NAMED: &str = "named_locations";
/// Note: locations sent before the lookup was complete: without a name, or without file and line.
pub const LATE: &str = "late_locations";
/// Note: native locations without a name, because their file was not found or has no name for the address.
pub const UNKNOWN: &str = "unknown_locations";
/// Note: failed downloads of debug files, not counting files that no server has.
pub const DEBUG_FILES_FAILED: &str = "debug_files_failed";
/// Note: batches sent early, because a limit was reached or memory was short.
pub const RELEASED_EARLY: &str = "released_early";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    // A resent profile may get better names, and would then not look like a resend.
    description: Description::processor(
        "symbolize",
        "names native frames by the symbols and debug information of their files",
        PROFILES,
    )
    .behind(&["dedup", "link_spans"]),
    create: |section, _| {
        Ok(Box::new(Symbolize::new(&section.extract_checked(|config: Config, section| config.check(section))?)))
    },
};
