//! Names for addresses of native code: ELF symbols, DWARF with inlined functions and lines, perf maps, the vDSO.
//!
//! A [`Symbolizer`] has one thread that reads files, so a caller never waits for a disk: [`Symbolizer::ask`] puts
//! addresses into a bounded queue, and [`Symbolizer::answer`] returns the current knowledge. The symbol tables of all
//! waiting objects are read before any DWARF, since a name without a line is more useful than a line that comes too
//! late.
//!
//! Files are hostile, because most belong to the profiled process. So they are read with `pread` and never mapped
//! (reading a mapping of a truncated file raises SIGBUS), only regular files are read, and every size is checked before
//! an allocation. Reading DWARF does not recurse and has a budget of work, since tables that refer to each other can
//! make the work quadratic in their size. A panic only costs its answer.
//!
//! A file without any symbol table still has names if Go compiled it (its `pclntab`). For other files, unwind
//! information has the starts of functions: `nginx+0x2a3f0`.
//!
//! Debug information may be in several files: a separate debug file, a file shared with others (`.gnu_debugaltlink`),
//! split units (`.dwo`, `.dwp`). A [`DebugFileServer`] can supply files that are not on this machine.

mod answer;
mod counters;
mod demangle;
mod dwarf;
mod elf;
mod go_table;
mod input;
mod intervals;
mod object;
mod perf_map;
mod plt;
mod segments;
mod server;
mod settings;
mod symbol_table;
mod symbolizer;
mod text;
mod unwind_table;
mod vdso;

pub use answer::{NamedBy, SymbolAnswer, SymbolFrame, Symbols, Unknown};
pub use counters::Counters;
pub use input::{open_in_root, open_on_this_machine};
pub use object::FileIdentity;
pub use object::{Object, ObjectId, ObjectKey, ObjectSource};
pub use perf_map::{MAX_MOMENTS, perf_map_place};
pub use segments::{Segments, build_id};
pub use server::{DebugFileServer, Requested};
pub use settings::Settings;
pub use symbolizer::Symbolizer;
