//! Compares histories with a complete list of all mappings.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::address_space::{CodeMemory, FileId, Module};

#[derive(Debug)]
struct NoMemory;

impl CodeMemory for NoMemory {
    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
}

/// An entry of the maps. File 0 is memory without a file.
fn entry(range: Range<u64>, file: u64) -> MapsEntry {
    let (path, file) = (file.to_string().into_bytes(), FileId { device: 0xfe01, inode: file });
    MapsEntry { start: range.start, end: range.end, offset: 0, file, path, deleted: false }
}

/// An address space in which `file` gives the file at each address.
fn space(file: impl Fn(u64) -> Option<u64>) -> Arc<AddressSpace> {
    let module = |address| {
        let inode = file(address)?;
        let kind = if inode == 0 { ModuleKind::Generated } else { ModuleKind::File };
        let file = FileId { device: 0xfe01, inode };
        let (start, end) = (address, address + 1);
        Some(Module { start, end, file, mapping: None, bias: 0, object: None, kind, builtins: 0..0 })
    };
    let modules = Arc::new((0..ADDRESSES).filter_map(module).collect());
    Arc::new(AddressSpace { modules, ..AddressSpace::with_code(Arc::new(NoMemory)) })
}

fn file(space: &AddressSpace, address: u64) -> Option<u64> {
    Some(space.find(address)?.file.inode)
}

const ADDRESSES: u64 = 12;

/// An action of a process or of the sampler.
#[derive(Debug, Clone)]
enum Step {
    /// The process maps this; the sampler receives the record later.
    Map { range: Range<u64>, file: u64 },
    /// The sampler reads one kernel record.
    Receive,
    /// The sampler reads the maps.
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let map = (0..ADDRESSES, 1..ADDRESSES, 0u64..4)
        .prop_map(|(start, length, file)| Step::Map { range: start..(start + length).min(ADDRESSES), file });
    prop::collection::vec(prop_oneof![3 => map, 3 => Just(Step::Receive), 1 => Just(Step::Read)], 0..40)
}

/// All mappings, by time.
#[derive(Debug, Default)]
struct Truth(Vec<(Instant, Range<u64>, u64)>);

impl Truth {
    fn file(&self, address: u64, time: Instant) -> Option<u64> {
        let before = self.0.iter().rev().filter(|(at, ..)| *at <= time);
        before.into_iter().find(|(_, range, _)| range.contains(&address)).map(|(.., file)| *file)
    }

    fn space(&self, time: Instant) -> Arc<AddressSpace> {
        space(|address| self.file(address, time))
    }
}

proptest! {
    /// Guarantees: for any order of mappings, records and reads, an address at a time up to which kernel records were
    /// received belongs to the file that was there at that time, or is unknown; once everything is read, it belongs to
    /// that file.
    #[test]
    fn as_it_was(steps in steps()) {
        let begin = Instant::now();
        let moment = |step: usize| begin + Duration::from_millis(step as u64);
        let mut truth = Truth::default();
        let mut received = 0;
        let mut history = History::new(truth.space(begin), begin);
        let receive = |history: &mut History, truth: &Truth, received: &mut usize| {
            if let Some((at, range, file)) = truth.0.get(*received) {
                history.mapped(*at, entry(range.clone(), *file));
                *received += 1;
            }
        };
        let read = |history: &mut History, truth: &Truth| {
            let records = history.take_records();
            let ends = (1..records.len()).filter(|end| records[*end].replaces).chain([records.len()]);
            for last in ends.filter_map(|end| records.get(end.checked_sub(1)?)) {
                history.set(last.at, truth.space(last.at));
            }
        };
        let check = |history: &History, truth: &Truth, until: Instant, last: usize, all: bool| {
            for time in (0..=last).map(moment).filter(|time| *time < until) {
                for address in 0..ADDRESSES {
                    let (known, right) = (file(history.at(time), address), truth.file(address, time));
                    if let Some(right) = right && (known.is_some() || all && right != 0) {
                        prop_assert_eq!(known, Some(right), "{} at {:?}", address, time - begin);
                    }
                }
            }
            Ok(())
        };
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Map { range, file } => truth.0.push((moment(number + 1), range.clone(), *file)),
                Step::Receive => receive(&mut history, &truth, &mut received),
                Step::Read => read(&mut history, &truth),
            }
            let until = truth.0.get(received).map_or(moment(number + 2), |(at, ..)| *at);
            check(&history, &truth, until, number + 1, false)?;
        }
        while received < truth.0.len() {
            receive(&mut history, &truth, &mut received);
        }
        read(&mut history, &truth);
        check(&history, &truth, moment(steps.len() + 2), steps.len() + 1, true)?;
    }
}

/// Guarantees: a process that keeps replacing its code while nobody reads its maps takes a bounded amount of memory,
/// and its latest mappings are known once the maps are read.
#[test]
fn attack_records() {
    let begin = Instant::now();
    let mut history = History::new(space(|_| Some(9)), begin);
    for number in 0..10_000u64 {
        let range = number % ADDRESSES..number % ADDRESSES + 1;
        history.mapped(begin + Duration::from_micros(number), entry(range, number % 7));
    }
    assert!(history.versions.len() <= MOST && history.records.len() <= MOST_RECORDS);
    assert!(history.latest().unread.len() <= MOST_RECORDS);
    let end = begin + Duration::from_secs(1);
    history.set(end, space(|_| Some(5)));
    assert_eq!(file(history.at(end), 3), Some(5));
}

/// Guarantees: memory that code is compiled into, and mappings that are already known, need no read.
#[test]
fn nothing_new() {
    let begin = Instant::now();
    let mut history = History::new(space(|address| [Some(1), Some(0), None][address as usize / 4]), begin);
    for (range, file) in [(0..1, 1), (4..5, 0), (5..6, 0)] {
        assert!(!history.mapped(begin, entry(range, file)));
    }
    assert!(history.take_records().is_empty());
    // Mappings at unused addresses are included in the next read.
    for (range, file) in [(4..12, 0), (8..12, 0), (8..10, 2)] {
        history.take_records();
        assert!(!history.mapped(begin, entry(range, file)));
    }
    assert_eq!(history.take_records().len(), 1);
    for (range, file) in [(0..1, 2), (3..5, 0), (4..8, 2)] {
        assert!(history.mapped(begin, entry(range, file)));
    }
}
