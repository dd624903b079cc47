//! State shared between the handles and the thread: objects, waiting addresses, answers.

use std::collections::VecDeque;
use std::fs::File;
use std::mem;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry as MapEntry;

use crate::counters::Counting;
use crate::{Object, ObjectId, ObjectKey, ObjectSource, Settings, SymbolAnswer, Symbols, Unknown};

/// The memory of an answer without its frames, in bytes: its entry in the table and the reference counts.
const SLOT_BYTES: usize = 64;
/// The maximum number of addresses of one task, because all data that they need is in memory at once.
const MAX_SYMBOLS_TASK: usize = 1 << 14;
const MAX_DWARF_TASK: usize = 1 << 15;
/// Answers age in steps. One step is an eighth of the allowed bytes.
const AGES: usize = 8;

/// The identity of an object of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ObjectIdentity {
    Object(ObjectKey),
    PerfMap(u64),
    Vdso,
}

/// The source of the names of an object.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Elf(Arc<ObjectOrigin>),
    PerfMap(Arc<File>, Arc<Vec<u32>>),
    Vdso,
}

/// The source of an ELF file: the parts of an [`Object`], shared.
#[derive(Debug)]
pub(crate) struct ObjectOrigin {
    pub(crate) key: ObjectKey,
    pub(crate) source: ObjectSource,
    pub(crate) root: Option<Arc<File>>,
    pub(crate) path: String,
}

impl Content {
    pub(super) fn new(object: Object) -> Self {
        let Object { key, source, root, path } = object;
        Self::Elf(Arc::new(ObjectOrigin { key, source, root, path }))
    }

    /// Whether the content contains an open file.
    fn holds_file(&self) -> bool {
        match self {
            Self::Elf(origin) => matches!(origin.source, ObjectSource::File(_)) || origin.root.is_some(),
            Self::PerfMap(..) => true,
            Self::Vdso => false,
        }
    }
}

/// A registered object.
#[derive(Debug)]
struct ObjectEntry {
    identity: ObjectIdentity,
    /// `None` if the file was closed to make room.
    content: Option<Content>,
    answers: HashMap<u64, ObjectSlot>,
    /// Addresses that wait for the symbol table.
    for_symbols: Vec<u64>,
    /// Addresses that wait for DWARF.
    for_dwarf: Vec<u64>,
    /// Addresses that wait for a debug file from a server.
    for_file: Vec<u64>,
    /// The number of addresses that the thread is working on.
    taken: usize,
    used: u64,
}

impl ObjectEntry {
    fn waiting(&self) -> usize {
        self.for_symbols.len() + self.for_dwarf.len() + self.for_file.len() + self.taken
    }
}

/// An answer and when it was last used.
#[derive(Debug)]
struct ObjectSlot {
    answer: SymbolAnswer,
    age: u64,
}

/// The outcome for one address.
#[derive(Debug, Clone)]
pub(super) enum LookupResult {
    /// The final answer.
    Settled(Result<Arc<Symbols>, Unknown>),
    /// The symbol table's answer. DWARF will be read next.
    Continued(Option<Arc<Symbols>>),
    /// The answer without a debug file that may arrive soon.
    Postponed(Option<Arc<Symbols>>),
}

/// Work for the thread.
#[derive(Debug)]
pub(super) enum Task {
    Symbols(ObjectId, Option<Content>, Vec<u64>),
    Dwarf(ObjectId, Option<Content>, Vec<(u64, Option<Arc<Symbols>>)>),
}

#[derive(Debug)]
pub(super) struct SymbolizerState {
    objects: HashMap<ObjectId, ObjectEntry>,
    identities: HashMap<ObjectIdentity, ObjectId>,
    next: u64,
    clock: u64,
    symbol_queue: VecDeque<ObjectId>,
    dwarf_queue: VecDeque<ObjectId>,
    /// The number of waiting addresses of all objects, whatever they wait for.
    pub(super) waiting: usize,
    pub(super) stop: bool,
    /// Objects whose tables the thread can drop.
    pub(super) forgotten: Vec<ObjectId>,
    open_files: usize,
    /// The number of bytes of answers, without their strings.
    answer_bytes: usize,
    /// The number of bytes of the strings that answers share.
    string_bytes: usize,
    /// Whether answers were dropped, so that some strings may be unused.
    pub(super) sweep: bool,
    answer_limit: usize,
    age: u64,
    /// The number of bytes of answers that were added in this age.
    age_bytes: usize,
    max_objects: usize,
    max_open_files: usize,
}

impl SymbolizerState {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            objects: HashMap::default(),
            identities: HashMap::default(),
            next: 0,
            clock: 0,
            symbol_queue: VecDeque::new(),
            dwarf_queue: VecDeque::new(),
            waiting: 0,
            stop: false,
            forgotten: Vec::new(),
            open_files: 0,
            answer_bytes: 0,
            string_bytes: 0,
            sweep: false,
            answer_limit: settings.cache_bytes / 4,
            age: 0,
            age_bytes: 0,
            max_objects: settings.max_objects.max(1),
            max_open_files: settings.max_open_files.max(1),
        }
    }

    pub(super) fn object(&mut self, identity: ObjectIdentity, content: Content, counting: &Counting) -> ObjectId {
        self.clock += 1;
        if let Some(&id) = self.identities.get(&identity)
            && let Some(entry) = self.objects.get_mut(&id)
        {
            entry.used = self.clock;
            // The file of a perf map may have been replaced. All other objects keep their first file.
            if entry.content.is_none() || matches!(content, Content::PerfMap(..)) {
                self.open_files -= usize::from(entry.content.as_ref().is_some_and(Content::holds_file));
                self.open_files += usize::from(content.holds_file());
                entry.content = Some(content);
                self.close_files();
            }
            return id;
        }
        while self.objects.len() >= self.max_objects {
            // Prefers an object for which no address is waiting.
            let Some(oldest) = self.oldest(|entry| entry.waiting() == 0).or_else(|| self.oldest(|_| true)) else {
                break;
            };
            self.forget(oldest);
            Counting::add(&counting.objects_evicted, 1);
        }
        Counting::add(&counting.objects, 1);
        let id = ObjectId(self.next);
        self.next += 1;
        self.open_files += usize::from(content.holds_file());
        self.identities.insert(identity.clone(), id);
        let entry = ObjectEntry {
            identity,
            content: Some(content),
            answers: HashMap::default(),
            for_symbols: Vec::new(),
            for_dwarf: Vec::new(),
            for_file: Vec::new(),
            taken: 0,
            used: self.clock,
        };
        self.objects.insert(id, entry);
        self.close_files();
        id
    }

    fn oldest(&self, which: impl Fn(&ObjectEntry) -> bool) -> Option<ObjectId> {
        self.objects.iter().filter(|(_, entry)| which(entry)).min_by_key(|(_, entry)| entry.used).map(|(&id, _)| id)
    }

    fn close_files(&mut self) {
        while self.open_files > self.max_open_files {
            let holds = |entry: &ObjectEntry| entry.content.as_ref().is_some_and(Content::holds_file);
            let Some(oldest) = self.oldest(|entry| holds(entry) && entry.waiting() == 0).or_else(|| self.oldest(holds))
            else {
                break;
            };
            if let Some(entry) = self.objects.get_mut(&oldest) {
                entry.content = None;
            }
            self.open_files -= 1;
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        let Some(entry) = self.objects.remove(&object) else { return };
        self.identities.remove(&entry.identity);
        self.forgotten.push(object);
        self.waiting -= entry.waiting();
        self.open_files -= usize::from(entry.content.as_ref().is_some_and(Content::holds_file));
        self.sweep = true;
        self.answer_bytes -= entry.answers.values().map(|slot| answer_size(&slot.answer)).sum::<usize>();
    }

    pub(super) fn ask(
        &mut self,
        object: ObjectId,
        addresses: &[u64],
        settings: &Settings,
        counting: &Counting,
    ) -> usize {
        self.clock += 1;
        let Some(entry) = self.objects.get_mut(&object) else { return 0 };
        entry.used = self.clock;
        let queued = !entry.for_symbols.is_empty();
        let grows = matches!(entry.identity, ObjectIdentity::PerfMap(_));
        let mut taken = 0;
        let mut asked = 0;
        for &address in addresses {
            let place = entry.answers.entry(address);
            if let MapEntry::Occupied(slot) = &place {
                let again = match slot.get().answer {
                    SymbolAnswer::Unknown(Unknown::Refused | Unknown::NotAsked) => true,
                    // The file may exist by now, and a perf map may have grown.
                    SymbolAnswer::Unknown(Unknown::NoFile) => entry.content.is_some(),
                    SymbolAnswer::Unknown(_) | SymbolAnswer::Final(_) => grows,
                    SymbolAnswer::Pending | SymbolAnswer::Symbols(_) => false,
                };
                if !again {
                    taken += 1;
                    continue;
                }
            }
            asked += 1;
            let refused = self.waiting >= settings.max_waiting;
            let answer = if refused {
                Counting::add(&counting.refused, 1);
                SymbolAnswer::Unknown(Unknown::Refused)
            } else {
                self.waiting += 1;
                entry.for_symbols.push(address);
                taken += 1;
                SymbolAnswer::Pending
            };
            let slot = ObjectSlot { answer, age: self.age };
            match place {
                // A perf map's previous answer stays valid until the next one.
                MapEntry::Occupied(mut place) => {
                    if !(grows && matches!(place.get().answer, SymbolAnswer::Final(_))) {
                        self.answer_bytes -= answer_size(&place.get().answer);
                        self.answer_bytes += answer_size(&slot.answer);
                        place.insert(slot);
                    }
                }
                MapEntry::Vacant(place) => {
                    self.answer_bytes += answer_size(&slot.answer);
                    self.age_bytes += answer_size(&slot.answer);
                    place.insert(slot);
                }
            }
        }
        if !queued && !entry.for_symbols.is_empty() {
            self.symbol_queue.push_back(object);
        }
        Counting::add(&counting.asked, asked);
        self.make_room(counting);
        taken
    }

    pub(super) fn answer(&mut self, object: ObjectId, address: u64) -> SymbolAnswer {
        let age = self.age;
        let slot = self.objects.get_mut(&object).and_then(|entry| entry.answers.get_mut(&address));
        slot.map_or(SymbolAnswer::Unknown(Unknown::NotAsked), |slot| {
            slot.age = age;
            slot.answer.clone()
        })
    }

    /// The objects with addresses that wait for a debug file from a server.
    pub(super) fn postponed(&self) -> Vec<ObjectId> {
        self.objects.iter().filter(|(_, entry)| !entry.for_file.is_empty()).map(|(&id, _)| id).collect()
    }

    /// Looks up addresses of an object again: those that waited for a debug file and, if the file has `arrived`, all
    /// others that were answered without it. The previous answers stay until better ones replace them.
    pub(super) fn resume(&mut self, object: ObjectId, arrived: bool) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        let queued = !entry.for_symbols.is_empty();
        entry.for_symbols.append(&mut entry.for_file);
        if arrived && entry.content.is_some() {
            let answered = entry.answers.iter().filter(|(_, slot)| !slot.answer.is_late());
            let before = entry.for_symbols.len();
            entry.for_symbols.extend(answered.map(|(&address, _)| address));
            self.waiting += entry.for_symbols.len() - before;
        }
        if !queued && !entry.for_symbols.is_empty() {
            self.symbol_queue.push_back(object);
        }
    }

    /// The next task. The symbol tables of all objects come before any DWARF.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        while let Some(id) = self.symbol_queue.pop_front() {
            let Some(entry) = self.objects.get_mut(&id) else { continue };
            let addresses = take_up_to(&mut entry.for_symbols, MAX_SYMBOLS_TASK);
            if addresses.is_empty() {
                continue;
            }
            if !entry.for_symbols.is_empty() {
                self.symbol_queue.push_back(id);
            }
            entry.taken += addresses.len();
            return Some(Task::Symbols(id, entry.content.clone(), addresses));
        }
        while let Some(id) = self.dwarf_queue.pop_front() {
            let Some(entry) = self.objects.get_mut(&id) else { continue };
            let addresses = take_up_to(&mut entry.for_dwarf, MAX_DWARF_TASK);
            if addresses.is_empty() {
                continue;
            }
            if !entry.for_dwarf.is_empty() {
                self.dwarf_queue.push_back(id);
            }
            entry.taken += addresses.len();
            let known = |address: &u64| entry.answers.get(address).and_then(|slot| slot.answer.symbols().cloned());
            let addresses = addresses.into_iter().map(|address| (address, known(&address))).collect();
            return Some(Task::Dwarf(id, entry.content.clone(), addresses));
        }
        None
    }

    /// Stores the thread's results. `string_bytes` is the new size of all strings of all answers.
    pub(super) fn store_results(
        &mut self,
        object: ObjectId,
        results: Vec<(u64, LookupResult)>,
        string_bytes: usize,
        counting: &Counting,
    ) {
        self.string_bytes = string_bytes;
        // The object may have been forgotten meanwhile.
        let Some(entry) = self.objects.get_mut(&object) else { return };
        let queued = !entry.for_dwarf.is_empty();
        for (address, verdict) in results {
            entry.taken -= 1;
            let answer = match verdict {
                LookupResult::Settled(result) => {
                    self.waiting -= 1;
                    result.map_or_else(SymbolAnswer::Unknown, SymbolAnswer::Final)
                }
                // A waiting address cannot be evicted. If waiting addresses use up all the room, DWARF is skipped.
                LookupResult::Continued(symbols) | LookupResult::Postponed(symbols)
                    if self.answer_bytes + self.string_bytes > self.answer_limit =>
                {
                    self.waiting -= 1;
                    symbols.map_or(SymbolAnswer::Unknown(Unknown::Refused), SymbolAnswer::Final)
                }
                LookupResult::Continued(symbols) => {
                    entry.for_dwarf.push(address);
                    symbols.map_or(SymbolAnswer::Pending, SymbolAnswer::Symbols)
                }
                LookupResult::Postponed(symbols) => {
                    entry.for_file.push(address);
                    symbols.map_or(SymbolAnswer::Pending, SymbolAnswer::Symbols)
                }
            };
            self.answer_bytes += answer_size(&answer);
            self.age_bytes += answer_size(&answer);
            if let Some(before) = entry.answers.insert(address, ObjectSlot { answer, age: self.age }) {
                self.answer_bytes -= answer_size(&before.answer);
            }
        }
        if !queued && !entry.for_dwarf.is_empty() {
            self.dwarf_queue.push_back(object);
        }
        self.make_room(counting);
    }

    /// Evicts the answers that were not used for longest, until an eighth of the room is free.
    fn make_room(&mut self, counting: &Counting) {
        if self.age_bytes > self.answer_limit / AGES {
            self.age += 1;
            self.age_bytes = 0;
        }
        let total = self.answer_bytes + self.string_bytes;
        if total > self.answer_limit {
            let mut by_age: HashMap<u64, usize> = HashMap::default();
            for slot in self.objects.values().flat_map(|entry| entry.answers.values()) {
                if !slot.answer.is_late() {
                    *by_age.entry(slot.age).or_default() += answer_size(&slot.answer);
                }
            }
            let mut ages: Vec<_> = by_age.into_iter().collect();
            ages.sort_unstable();
            // Assumes that strings shrink in proportion to the answers.
            let surplus = total - self.answer_limit + self.answer_limit / AGES;
            let surplus = (surplus as u128 * self.answer_bytes as u128 / total as u128) as usize;
            let mut freed = 0;
            let mut limit = 0;
            for (age, bytes) in ages {
                if freed >= surplus {
                    break;
                }
                freed += bytes;
                limit = age + 1;
            }
            let mut dropped = 0;
            for entry in self.objects.values_mut() {
                entry.answers.retain(|_, slot| {
                    let keep = slot.age >= limit || slot.answer.is_late();
                    if !keep {
                        dropped += 1;
                        self.answer_bytes -= answer_size(&slot.answer);
                    }
                    keep
                });
            }
            Counting::add(&counting.answers_evicted, dropped);
            self.sweep = true;
        }
        Counting::set(&counting.answer_bytes, self.answer_bytes + self.string_bytes);
    }
}

/// Removes up to `count` elements from the end.
fn take_up_to(addresses: &mut Vec<u64>, count: usize) -> Vec<u64> {
    if addresses.len() <= count { mem::take(addresses) } else { addresses.split_off(addresses.len() - count) }
}

/// Size of an answer in bytes, without its strings.
fn answer_size(answer: &SymbolAnswer) -> usize {
    SLOT_BYTES + answer.symbols().map_or(0, |symbols| size_of_val(&*symbols.frames))
}
