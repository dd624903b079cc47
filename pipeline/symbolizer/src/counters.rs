//! Counters of a symbolizer.

/// Defines each counter once, for two structs: one of atomics to count with, and one of plain numbers to read.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of a [`Symbolizer`](crate::Symbolizer). All are totals since its start, except for the sizes at
        /// the end.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: std::sync::atomic::AtomicU64,)+
        }

        impl Counting {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)+ }
            }
        }

        impl Counters {
            /// Every counter with its name, for metrics.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Objects registered.
    objects,
    /// Objects evicted to make room for others.
    objects_evicted,
    /// Objects whose file was not found, could not be read, or did not match.
    files_missing,
    /// Files, symbol tables or DWARF larger than allowed.
    too_large,
    /// Files, symbol tables or DWARF that are malformed.
    malformed,
    /// Files of unsupported kinds.
    unsupported,
    /// Panics in code that reads files. Each is a bug and leaves an address without a name.
    panics,
    /// Symbol tables read.
    symbol_tables,
    /// Symbol tables and DWARF that were evicted, and are read again when needed.
    tables_evicted,
    /// Files whose DWARF was read.
    dwarf,
    /// Separate debug files found.
    debug_files,
    /// Separate debug files refused because of a wrong build id or checksum.
    debug_files_refused,
    /// Failed downloads of debug files, not counting files that no server has.
    debug_files_failed,
    /// DWARF that was abandoned because reading it takes more work than its size justifies.
    dwarf_given_up,
    /// Requested addresses that were not known already.
    asked,
    /// Addresses refused because too many were waiting.
    refused,
    /// Addresses for which the symbol table had a name.
    symbols_found,
    /// Addresses for which the symbol table had no name.
    symbols_missed,
    /// Addresses named only by Go's own table.
    named_by_go_table,
    /// Addresses for which only the unwind table has a function: a start, but no name.
    named_by_unwind_table,
    /// Addresses for which DWARF had a function or a line.
    dwarf_found,
    /// Addresses for which DWARF had neither a function nor a line.
    dwarf_missed,
    /// Answers that were needed before they were final.
    late,
    /// Answers evicted to make room.
    answers_evicted,
    /// Malformed lines of perf maps.
    perf_map_lines_malformed,
    /// Current number of bytes of answers in memory.
    answer_bytes,
    /// Current number of bytes of symbol tables and DWARF in memory.
    table_bytes,
}

impl Counting {
    pub(crate) fn add(counter: &std::sync::atomic::AtomicU64, count: usize) {
        counter.fetch_add(count as u64, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn set(counter: &std::sync::atomic::AtomicU64, value: usize) {
        counter.store(value as u64, std::sync::atomic::Ordering::Relaxed);
    }
}
