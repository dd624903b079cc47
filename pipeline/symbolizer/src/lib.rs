//! Names for addresses of native code: ELF symbols, DWARF with inlined functions and lines, perf maps, the vDSO.
//!
//! A [`Symbolizer`] has one thread that reads files, so nobody who asks ever waits for a disk: [`Symbolizer::ask`] puts
//! addresses into a bounded queue, and [`Symbolizer::answer`] says what is known by now. The symbol tables of all
//! objects that wait are read before the DWARF of any, since a name without a line is worth more than a line too late.
//!
//! Files are hostile: most belong to the process that is being profiled. So they are read with `pread` and never mapped
//! (a mapping of a file that is cut short is a SIGBUS), only if they are regular, every size is checked before anything
//! is allocated, DWARF is read under a budget of work (its tables may refer to each other so that reading takes the
//! square of their size), without recursion, and a panic costs the answer and not the program.
//!
//! A file without a symbol table, nor a debug file that has one, still has names where Go made it (its `pclntab`), and
//! else the starts of its functions, which unwinding needs: `nginx+0x2a3f0`.
//!
//! Debug information may be in several files: a separate one, one that it shares with others (`.gnu_debugaltlink`), units
//! of their own (`.dwo`, `.dwp`). What is not on this machine may come from a [`DebugFileServer`].

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

pub use answer::{Answer, Frame, NamedBy, Symbols, Unknown};
pub use counters::Counters;
pub use input::{open_in_root, open_on_this_machine};
pub use object::FileIdentity;
pub use object::{Key, Object, ObjectId, Source};
pub use perf_map::{MAX_MOMENTS, perf_map_place};
pub use segments::Segments;
pub use server::{DebugFileServer, Requested};
pub use settings::Settings;
pub use symbolizer::Symbolizer;
