//! Names of the kernel's functions, from `/proc/kallsyms`.
//!
//! The file is read when an unknown function is sampled, and its contents are kept only for a while: they take 4 MiB,
//! and a service uses a few hundred functions of the kernel. Without the right to see addresses, all of them are shown
//! as zero (kptr_restrict in Documentation/admin-guide/sysctl/kernel.rst).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use profbridge_symbolizer::{SymbolFrame, Symbols};

/// The name of a kernel frame whose function is unknown.
pub(crate) const NAMELESS: &str = "[kernel]";

/// How long the table is kept after its last use. It is read at most twice in this time, in case modules were loaded or
/// unloaded.
const KEPT: Duration = Duration::from_secs(30);

/// How many functions are cached. Beyond that the cache is cleared; in practice the kernel has fewer functions that
/// are sampled.
const MOST_KNOWN: usize = 16 << 10;

/// The functions of the kernel.
#[derive(Debug, Default)]
pub(super) struct KernelSymbols {
    /// The functions that were sampled: end address and name, by start address.
    known: BTreeMap<u64, (u64, Arc<Symbols>)>,
    table: Option<KernelSymbolTable>,
    /// When the table was last used, or could not be read.
    used: Option<Instant>,
}

impl KernelSymbols {
    /// The function at an address.
    pub(super) fn symbols(&mut self, address: u64) -> Arc<Symbols> {
        let used = self.used;
        self.table.take_if(|_| used.is_some_and(|used| used.elapsed() >= KEPT));
        if let Some((_, (end, symbols))) = self.known.range(..=address).next_back()
            && address < *end
        {
            return Arc::clone(symbols);
        }
        let function = self.table().and_then(|table| table.function(address)).map(|(start, end, name)| {
            let name = Arc::<str>::from(name);
            (start, end, Arc::new(Symbols::from(vec![frame(name)])))
        });
        let Some((start, end, symbols)) = function else {
            return Arc::new(Symbols::from(vec![frame(NAMELESS.into())]));
        };
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(start, (end, Arc::clone(&symbols)));
        symbols
    }

    fn table(&mut self) -> Option<&KernelSymbolTable> {
        let empty = self.table.is_none();
        if empty && self.used.is_none_or(|used| used.elapsed() >= KEPT / 2) {
            self.table = File::open("/proc/kallsyms").ok().map(|file| KernelSymbolTable::parse(BufReader::new(file)));
            self.used = Some(Instant::now());
        } else if !empty {
            self.used = Some(Instant::now());
        }
        self.table.as_ref()
    }
}

fn frame(name: Arc<str>) -> SymbolFrame {
    SymbolFrame { function: Arc::clone(&name), system_name: name, file: None, line: 0, column: 0 }
}

/// Functions by their addresses.
#[derive(Debug, Default)]
struct KernelSymbolTable {
    /// Where each function starts, and the offset of its name, in ascending order.
    functions: Vec<(u64, u32)>,
    /// The names, each ended by a line feed.
    names: String,
}

impl KernelSymbolTable {
    /// Parses lines of address, kind and name, and for modules their name in brackets (kernel/kallsyms.c, `s_show`).
    /// Lines of anything but functions, and malformed ones, are left out.
    fn parse(mut lines: impl BufRead) -> Self {
        let mut table = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                break;
            }
            let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(function) else { continue };
            let Ok(place) = u32::try_from(table.names.len()) else { break };
            table.functions.push((address, place));
            table.names.push_str(name);
            table.names.push('\n');
        }
        // The sort is stable: of several names at one address the first one counts, as in the kernel itself.
        table.functions.sort_by_key(|(address, _)| *address);
        table.functions.dedup_by_key(|(address, _)| *address);
        table.functions.shrink_to_fit();
        table
    }

    /// The start, end and name of the function that contains an address.
    fn function(&self, address: u64) -> Option<(u64, u64, &str)> {
        let behind = self.functions.partition_point(|(start, _)| *start <= address);
        let &(start, place) = self.functions.get(behind.checked_sub(1)?)?;
        let end = self.functions.get(behind).map_or(u64::MAX, |(start, _)| *start);
        let (name, _) = self.names.get(place as usize..)?.split_once('\n')?;
        Some((start, end, name))
    }
}

/// A line's address and name, if it is a function that has one.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    let kind = words.next()?;
    if !matches!(kind, "t" | "T" | "w" | "W") {
        return None;
    }
    Some((address, words.next()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Guarantees: functions are found by any address in them, up to the next one; hidden addresses, data and
    /// malformed lines are left out.
    #[test]
    fn lines() {
        let text: &[u8] = b"ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 t do_it\n\
                    ffffffff81000180 d data\nffffffffc0001000 t of_module\t[module]\n\
                    0000000000000000 T hidden\nzz T x\n\nffffffff81000190 T\n\xff\n";
        let table = KernelSymbolTable::parse(text);
        let name = |address| table.function(address).map(|(_, _, name)| name);
        assert_eq!(name(0xffff_ffff_8100_0000), Some("_stext"));
        assert_eq!(name(0xffff_ffff_8100_00ff), Some("_stext"));
        assert_eq!(name(0xffff_ffff_8100_0100), Some("do_it"));
        assert_eq!(name(0xffff_ffff_8100_0190), Some("do_it"));
        assert_eq!(name(0xffff_ffff_c000_1234), Some("of_module"));
        assert_eq!(name(0xffff_ffff_80ff_ffff), None);
        assert_eq!(KernelSymbolTable::parse("0000000000000000 T a\n".as_bytes()).function(5), None);
    }

    /// Guarantees: with the right to see addresses, a function of this kernel is found by its name.
    #[test]
    fn this_kernel() {
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let Some((address, name)) = text.lines().filter_map(function).find(|(_, name)| *name == "vfs_read") else {
            std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("untested here: addresses of the kernel are hidden\n"),
            )
            .ok();
            return;
        };
        let mut kernel = KernelSymbols::default();
        for _ in 0..2 {
            assert_eq!(&*kernel.symbols(address + 1).frames[0].function, name);
        }
        assert_eq!(kernel.known.len(), 1);
    }

    proptest! {
        /// Guarantees: the table gives the same results as a search of each line.
        #[test]
        fn like_each_line(mut starts in prop::collection::btree_set(1u64..500, 0..20), address in 0u64..520) {
            let text: String = starts.iter().map(|start| format!("{start:016x} t f{start}\n")).collect();
            let table = KernelSymbolTable::parse(text.as_bytes());
            starts.retain(|start| *start <= address);
            let expected = starts.last().map(|start| format!("f{start}"));
            prop_assert_eq!(table.function(address).map(|(_, _, name)| name.to_owned()), expected);
        }
    }
}
