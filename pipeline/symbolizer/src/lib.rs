//! Names for addresses of native code: ELF symbols, DWARF with inlined functions and lines, perf maps, the vDSO.
//!
//! A [`Symbolizer`] has one thread that reads files, so a caller never waits for a disk: [`Symbolizer::ask`] puts
//! addresses into a bounded queue, and [`Symbolizer::answer`] returns what is known by now. The symbol tables of all
//! waiting objects are read before any DWARF, since a name without a line is worth more than a line too late.
//!
//! Files are hostile: most belong to the profiled process. So they are read with `pread` and never mapped (a mapping of
//! a truncated file raises SIGBUS), only regular files are read, and every size is checked before an allocation.
//! Reading DWARF does not recurse and has a budget of work, since tables that refer to each other can make it quadratic
//! in their size. A panic costs the answer and not the program.
//!
//! A file without any symbol table still has names if Go compiled it (its `pclntab`). For others, unwind information
//! gives the starts of functions: `nginx+0x2a3f0`.
//!
//! Debug information may be in several files: a separate debug file, a file shared with others (`.gnu_debugaltlink`),
//! split units (`.dwo`, `.dwp`). A [`DebugFileServer`] can supply what is not on this machine.

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

pub use answer::{Frame, NamedBy, SymbolAnswer, Symbols, Unknown};
pub use counters::Counters;
pub use input::{open_in_root, open_on_this_machine};
pub use object::FileIdentity;
pub use object::{Object, ObjectId, ObjectKey, ObjectSource};
pub use perf_map::{MAX_MOMENTS, perf_map_place};
pub use segments::{Segments, build_id};
pub use server::{DebugFileServer, Requested};
pub use settings::Settings;
pub use symbolizer::Symbolizer;
