//! The thread that reads files.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use hashbrown::HashMap;

use super::SharedState;
use super::debug_file::RemoteFiles;
use super::state::{Content, LookupResult, Task};
use super::store::ObjectTables;
use super::strings::Strings;
use crate::counters::Counting;
use crate::demangle::is_mangled;
use crate::dwarf::{FunctionName, SourceFrames};
use crate::go_table::Steps;
use crate::text::clean;
use crate::{DebugFileServer, NamedBy, ObjectId, SymbolFrame, Symbols, Unknown};

/// Prefix of the aliases by which glibc calls its own functions.
const HIDDEN_ALIAS: &str = "__GI_";

/// Size of the thread's stack. Demanglers recurse, to a limited depth.
const STACK_BYTES: usize = 8 << 20;

/// How often to check for arrived debug files.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn start(shared: Arc<SharedState>, server: Option<Arc<dyn DebugFileServer>>) -> io::Result<()> {
    let remote = RemoteFiles { server, ..RemoteFiles::default() };
    let run = move || run(&shared, &remote);
    thread::Builder::new().name("symbolize".into()).stack_size(STACK_BYTES).spawn(run).map(drop)
}

fn run(shared: &SharedState, remote: &RemoteFiles) {
    let store = ObjectTables::new(&shared.settings, &shared.counting, &shared.stop, remote);
    let mut worker = SymbolizerWorker { shared, store, strings: Strings::default() };
    loop {
        let (task, forgotten) = {
            let mut state = shared.state();
            loop {
                if state.stop {
                    return;
                }
                let forgotten = std::mem::take(&mut state.forgotten);
                match state.next_task() {
                    Some(task) => break (Some(task), forgotten),
                    None if !forgotten.is_empty() => break (None, forgotten),
                    None if worker.store.is_expecting() => {
                        let waited = shared.work.wait_timeout(state, LOOK);
                        drop(waited.unwrap_or_else(PoisonError::into_inner));
                        worker.look_for_files();
                        state = shared.state();
                    }
                    None => state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        for object in forgotten {
            worker.store.forget(object);
        }
        let Some(task) = task else { continue };
        let (object, results) = worker.perform(task);
        worker.store.make_room();
        let mut state = shared.state();
        state.store_results(object, results, worker.strings.bytes(), &shared.counting);
        let sweep = std::mem::take(&mut state.sweep);
        if state.waiting == 0 {
            shared.idle.notify_all();
        }
        drop(state);
        if sweep {
            worker.strings.sweep();
        }
    }
}

struct SymbolizerWorker<'a> {
    shared: &'a SharedState,
    store: ObjectTables<'a>,
    strings: Strings,
}

type LookupResults = Vec<(u64, LookupResult)>;

impl SymbolizerWorker<'_> {
    /// Resumes addresses whose debug files have arrived, or for which waiting is no longer worthwhile.
    fn look_for_files(&mut self) {
        let arrived = self.store.arrived();
        let mut state = self.shared.state();
        for (object, came) in arrived {
            state.resume(object, came);
        }
        let postponed = state.postponed();
        drop(state);
        for object in postponed {
            if !self.store.is_worth_waiting(object) {
                self.shared.state().resume(object, false);
            }
        }
    }

    /// Performs a task. If it panics, its addresses get no name, now and later.
    fn perform(&mut self, task: Task) -> (ObjectId, LookupResults) {
        match task {
            Task::Symbols(object, content, addresses) => {
                let results = catch_unwind(AssertUnwindSafe(|| self.symbols(object, content.as_ref(), &addresses)));
                let failed = || addresses.iter().map(|&address| (address, LookupResult::Settled(Err(Unknown::Failed))));
                (object, results.unwrap_or_else(|_| self.panicked(object, false, failed().collect())))
            }
            Task::Dwarf(object, content, known) => {
                let results = catch_unwind(AssertUnwindSafe(|| self.dwarf(object, content.as_ref(), &known)));
                let as_known =
                    || known.iter().map(|(address, known)| (*address, LookupResult::Settled(settled(known))));
                (object, results.unwrap_or_else(|_| self.panicked(object, true, as_known().collect())))
            }
        }
    }

    fn panicked(&mut self, object: ObjectId, only_dwarf: bool, results: LookupResults) -> LookupResults {
        Counting::add(&self.shared.counting.panics, 1);
        tracing::error!(object = object.0, "reading a file panicked, which is a defect; it is not read again");
        self.store.give_up(object, only_dwarf);
        results
    }

    fn symbols(&mut self, object: ObjectId, content: Option<&Content>, addresses: &[u64]) -> LookupResults {
        let found = match self.store.symbols(object, content) {
            Ok(found) => found,
            Err(why) => {
                let waits = self.store.is_worth_waiting(object);
                let verdict = || if waits { LookupResult::Postponed(None) } else { LookupResult::Settled(Err(why)) };
                return addresses.iter().map(|&address| (address, verdict())).collect();
            }
        };
        let waits = found.waits;
        let has_dwarf = found.has_dwarf();
        let demangles = self.shared.settings.demangle && found.is_mangled();
        // Addresses in the same function share one result.
        let mut known: HashMap<&[u8], Arc<Symbols>> = HashMap::default();
        let mut starts: HashMap<u64, Arc<Symbols>> = HashMap::default();
        let mut steps = Steps::new();
        let (mut missed, mut by_go, mut by_unwind) = (0, 0, 0);
        let strings = &mut self.strings;
        let results = addresses.iter().map(|&address| {
            let symbols = found.find(address).map(|name| {
                let symbols = known.entry(name).or_insert_with(|| {
                    let names = strings.names(&clean(name), demangles);
                    one_frame(names, None, NamedBy::Symbols)
                });
                Arc::clone(symbols)
            });
            missed += usize::from(symbols.is_none());
            let symbols = symbols.or_else(|| {
                let function = found.go_function(address)?;
                by_go += 1;
                let names = strings.names(&clean(function.name), false);
                let line = found.go_line(&function, address, &mut steps);
                Some(one_frame(names, line.map(|(file, line)| (strings.keep(&clean(file)), line)), NamedBy::GoTable))
            });
            let symbols = symbols.or_else(|| {
                let (file, start) = found.start(address)?;
                by_unwind += 1;
                let symbols = starts.entry(start).or_insert_with(|| {
                    let names = strings.names(&clean(format!("{file}+{start:#x}").as_bytes()), false);
                    one_frame(names, None, NamedBy::UnwindTable)
                });
                Some(Arc::clone(symbols))
            });
            let verdict = match symbols {
                symbols if waits => LookupResult::Postponed(symbols),
                symbols if has_dwarf => LookupResult::Continued(symbols),
                symbols => LookupResult::Settled(settled(&symbols)),
            };
            (address, verdict)
        });
        let results = results.collect();
        Counting::add(&self.shared.counting.symbols_missed, missed);
        Counting::add(&self.shared.counting.named_by_go_table, by_go);
        Counting::add(&self.shared.counting.named_by_unwind_table, by_unwind);
        Counting::add(&self.shared.counting.symbols_found, addresses.len() - missed);
        results
    }

    fn dwarf(
        &mut self,
        object: ObjectId,
        content: Option<&Content>,
        known: &[(u64, Option<Arc<Symbols>>)],
    ) -> LookupResults {
        let mut known: Vec<_> = known.iter().collect();
        known.sort_unstable_by_key(|(address, _)| *address);
        let addresses: Vec<_> = known.iter().map(|(address, _)| *address).collect();
        let places = self.store.places(object, content, &addresses);
        let mut places = places.into_iter().flatten();
        let table = self.store.symbols(object, content).ok();
        let (strings, demangle) = (&mut self.strings, self.shared.settings.demangle);
        let mut combiner = Combiner { strings, demangle, known: HashMap::default() };
        let mut found = 0;
        let results = known.into_iter().map(|(address, symbols)| {
            let place = places.next().flatten();
            found += usize::from(place.is_some());
            let is_alias = |name: &str| table.as_ref().is_some_and(|table| table.is_alias(*address, name));
            let better = place.and_then(|place| combiner.combine(place, symbols.as_deref(), is_alias));
            (*address, LookupResult::Settled(better.map_or_else(|| settled(symbols), Ok)))
        });
        let results: LookupResults = results.collect();
        Counting::add(&self.shared.counting.dwarf_found, found);
        Counting::add(&self.shared.counting.dwarf_missed, results.len() - found);
        results
    }
}

/// Combines the results of DWARF and the symbol table.
struct Combiner<'a> {
    strings: &'a mut Strings,
    demangle: bool,
    /// Names from DWARF, demangled and as they are in the file.
    known: HashMap<Arc<str>, (Arc<str>, Arc<str>)>,
}

impl Combiner<'_> {
    /// Returns the name of the outermost function from its symbol or from DWARF. DWARF's name is usually better: cloned
    /// functions (`f.cold`) have odd symbols, and languages mangle. There are two exceptions. If DWARF has only the
    /// short name (`size`), a mangled symbol contains more (`std::vector<int>::size() const`). If DWARF has an alias of
    /// the symbol, or one that only glibc uses (`__GI___libc_malloc`), the symbol is the better known name (`malloc`).
    fn combine(
        &mut self,
        place: SourceFrames,
        symbols: Option<&Symbols>,
        is_alias: impl Fn(&str) -> bool,
    ) -> Option<Arc<Symbols>> {
        let symbol = symbols.filter(|symbols| symbols.named_by != NamedBy::UnwindTable);
        let symbol = symbol.and_then(|symbols| symbols.frames.first());
        let last = place.frames.len().checked_sub(1)?;
        let mut frames = Vec::with_capacity(place.frames.len());
        for (position, frame) in place.frames.into_iter().enumerate() {
            let symbol = symbol.filter(|_| position == last);
            let says_more = |name: &Option<FunctionName>, symbol: &SymbolFrame| match name {
                None => true,
                Some(FunctionName { linkage: false, .. }) if is_mangled(&symbol.system_name) => true,
                // All mangled aliases are equally public, so DWARF's is used: it matches the source position.
                Some(FunctionName { text, .. }) => {
                    text.starts_with(HIDDEN_ALIAS) || !is_mangled(text) && is_alias(text)
                }
            };
            let (function, system_name) = match (frame.name, symbol) {
                (name, Some(symbol)) if says_more(&name, symbol) => {
                    (Arc::clone(&symbol.function), Arc::clone(&symbol.system_name))
                }
                (Some(name), _) => {
                    let demangles = self.demangle && name.linkage;
                    let strings = &mut *self.strings;
                    let names = self.known.entry(name.text).or_insert_with_key(|text| strings.names(text, demangles));
                    (Arc::clone(&names.0), Arc::clone(&names.1))
                }
                // A function without a name cannot be distinguished from others.
                (None, _) => continue,
            };
            let file = frame.file.map(|file| self.strings.keep(&file));
            frames.push(SymbolFrame { function, system_name, file, line: frame.line, column: frame.column });
        }
        (!frames.is_empty()).then(|| Arc::new(frames.into()))
    }
}

/// A single frame: a function and its source position.
fn one_frame(
    (function, system_name): (Arc<str>, Arc<str>),
    line: Option<(Arc<str>, u32)>,
    named_by: NamedBy,
) -> Arc<Symbols> {
    let (file, line) = line.map_or((None, 0), |(file, line)| (Some(file), line));
    let frame = SymbolFrame { function, system_name, file, line, column: 0 };
    Arc::new(Symbols { frames: [frame].into(), named_by })
}

fn settled(symbols: &Option<Arc<Symbols>>) -> Result<Arc<Symbols>, Unknown> {
    symbols.clone().ok_or(Unknown::NoSymbol)
}
