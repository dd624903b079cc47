//! What a symbolizer has done.

/// Defines the counters once: as atomics to count with and as plain numbers to read.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a [`Symbolizer`](crate::Symbolizer) has done. All are totals since its start, except for the sizes at
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
    /// Objects that were named.
    objects,
    /// Objects that made room for others.
    objects_evicted,
    /// Objects whose file was not found, could not be read, or was another one.
    files_missing,
    /// Files, symbol tables or DWARF larger than allowed.
    too_large,
    /// Files, symbol tables or DWARF that make no sense.
    malformed,
    /// Files of kinds that are not read.
    unsupported,
    /// Panics of the code that reads files: defects, of which the address gets no name.
    panics,
    /// Symbol tables read.
    symbol_tables,
    /// Symbol tables and DWARF that were dropped to make room, and are read again when needed.
    tables_evicted,
    /// Files with DWARF that was read.
    dwarf,
    /// Separate debug files found.
    debug_files,
    /// Separate debug files that were refused, since their build id or checksum is another one.
    debug_files_refused,
    /// Attempts to bring a debug file from elsewhere that failed, other than since nobody has it.
    debug_files_failed,
    /// DWARF that was given up, since reading it takes more work than its size explains.
    dwarf_given_up,
    /// Addresses asked that were not known already.
    asked,
    /// Addresses refused since too many were waiting.
    refused,
    /// Addresses for which the symbol table had a name.
    symbols_found,
    /// Addresses for which it had none.
    symbols_missed,
    /// Addresses that Go's own table has a function for, and no symbol table.
    named_by_go_table,
    /// Addresses that the unwind table has a function for, and nothing else: it has a start and no name.
    named_by_unwind_table,
    /// Addresses for which DWARF had a function or a line.
    dwarf_found,
    /// Addresses for which it had none.
    dwarf_missed,
    /// Answers that had to be given before all was known.
    late,
    /// Answers that were dropped to make room.
    answers_evicted,
    /// Lines of perf maps that make no sense.
    perf_map_lines_malformed,
    /// Bytes of answers that are kept at the moment.
    answer_bytes,
    /// Bytes of symbol tables and DWARF that are kept at the moment.
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
