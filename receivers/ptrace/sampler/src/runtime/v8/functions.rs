//! Functions: their names, scripts and lines.
//!
//! All closures of a function share a `SharedFunctionInfo`. It has the script and either the name or a `ScopeInfo`
//! with the name. Source of the layouts: v8/v8 `src/objects/shared-function-info.tq`, `scope-info.tq`, `script.tq`.

use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::heap::{Heap, is_object, number};
use crate::message::FunctionKind;
use crate::runtime::functions::{Functions, MAX_FILE, MAX_NAME};
use crate::runtime::target::word_at;

/// The maximum number of cached functions.
const MAX_KNOWN: usize = 32_768;
/// The maximum number of cached line ends of all scripts together.
const MAX_LINES: usize = 4 << 20;
/// The longest source whose lines are counted, in characters.
const MAX_SOURCE: u64 = 16 << 20;

/// Offsets of script fields, the same in all versions: source, name, first line, line ends and script id.
const SOURCE: u64 = 8;
const NAME: u64 = 16;
const FIRST_LINE: u64 = 24;
const LINE_ENDS: u64 = 56;
const ID: u64 = 64;

/// The values compared to see whether a function is still the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FunctionFields {
    map: u64,
    name: u64,
    source: FunctionSource,
    /// The number of parameters, the start position, and the number in the script.
    numbers: [u64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FunctionSource {
    /// A script: its address, and its id, which is unique in the isolate.
    Script { address: u64, id: u64 },
    /// The function has a script, which is not looked up because the function is being debugged.
    Debugged,
    /// There is no source: the function is part of V8.
    Nothing,
}

/// A function that was read. It is looked up for every frame, so its strings are shared, not copied.
#[derive(Debug, Clone)]
pub(super) struct KnownFunction {
    fingerprint: FunctionFields,
    /// The function's current code or byte code.
    pub(super) code: u64,
    /// Whether the function has no source, because it is part of V8.
    pub(super) builtin: bool,
    pub(super) function: u32,
    texts: Arc<FunctionName>,
}

/// The name and the location of a function.
#[derive(Debug)]
struct FunctionName {
    name: String,
    file: Arc<str>,
    first_line: u32,
    /// The number of the function's entry with the suffix "with inlined functions", once it was needed.
    with_inlined: OnceLock<u32>,
}

#[derive(Debug)]
struct Script {
    id: u64,
    file: Arc<str>,
    first_line: u32,
    /// The offsets where lines end, in characters.
    ends: Vec<u32>,
}

/// The functions of a process.
#[derive(Debug, Default)]
pub(super) struct SharedFunctions {
    known: HashMap<u64, KnownFunction, RandomState>,
    scripts: HashMap<u64, Script, RandomState>,
    lines: usize,
    /// The number of the entry for regular expressions, once it was needed.
    regular_expression: Option<u32>,
}

impl SharedFunctions {
    /// Returns the function with this `SharedFunctionInfo`, and reads it again if it has changed. `None` also if this
    /// object, or one that it refers to, was moved or freed during the read, so that strings may be wrong.
    pub(super) fn look_up(
        &mut self,
        shared: u64,
        heap: &mut Heap<'_, '_>,
        functions: &mut Functions,
    ) -> Option<KnownFunction> {
        let (fingerprint, code) = fingerprint(shared, heap)?;
        if let Some(known) = self.known.get_mut(&shared)
            && known.fingerprint == fingerprint
        {
            known.code = code;
            return Some(known.clone());
        }
        let mut known = self.read(fingerprint, code, heap)?;
        if self::fingerprint(shared, heap).is_none_or(|(now, _)| now != fingerprint) {
            return None;
        }
        let FunctionName { name, file, first_line, .. } = &*known.texts;
        known.function = functions.number(FunctionKind::V8, name, file, *first_line);
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(shared, known.clone());
        Some(known)
    }

    fn read(&mut self, fingerprint: FunctionFields, code: u64, heap: &mut Heap<'_, '_>) -> Option<KnownFunction> {
        let (name, start) = if number(fingerprint.name).is_some() {
            (String::new(), None)
        } else if heap.is_string(fingerprint.name) {
            (heap.string(fingerprint.name, MAX_NAME)?, None)
        } else {
            scope(fingerprint.name, heap)?
        };
        let name = if name.is_empty() { ANONYMOUS.to_owned() } else { name };
        let (file, first_line) = match self.script(fingerprint.source, heap) {
            Some(script) => (Arc::clone(&script.file), start.map_or(0, |start| script.line(start))),
            None if matches!(fingerprint.source, FunctionSource::Script { .. }) => return None,
            None => (Arc::default(), 0),
        };
        let texts = Arc::new(FunctionName { name, file, first_line, with_inlined: OnceLock::new() });
        Some(KnownFunction {
            fingerprint,
            code,
            builtin: fingerprint.source == FunctionSource::Nothing,
            function: 0,
            texts,
        })
    }

    /// The number of the entry for regular expressions.
    pub(super) fn regular_expression(&mut self, functions: &mut Functions) -> u32 {
        let number = || functions.number(FunctionKind::V8, REGULAR_EXPRESSION, "", 0);
        *self.regular_expression.get_or_insert_with(number)
    }

    /// The line at an offset in a function's script, 0 if unknown.
    pub(super) fn line(&mut self, known: &KnownFunction, offset: u32, heap: &mut Heap<'_, '_>) -> u32 {
        self.script(known.fingerprint.source, heap).map_or(0, |script| script.line(offset))
    }

    /// Returns the script of a source; `None` if there is none or it cannot be read.
    fn script(&mut self, source: FunctionSource, heap: &mut Heap<'_, '_>) -> Option<&Script> {
        let FunctionSource::Script { address, id } = source else { return None };
        if self.scripts.get(&address).is_none_or(|script| script.id != id) {
            if self.lines > MAX_LINES || self.scripts.len() > MAX_KNOWN {
                self.scripts.clear();
                self.lines = 0;
            }
            let script = read_script(address, id, heap)?;
            self.lines += script.ends.len();
            self.scripts.insert(address, script);
        }
        self.scripts.get(&address)
    }
}

/// Reads the identifying values of the `SharedFunctionInfo` at an address, and its code.
fn fingerprint(shared: u64, heap: &mut Heap<'_, '_>) -> Option<(FunctionFields, u64)> {
    let layout = heap.layout;
    let mut bytes = [0; 192];
    let length = layout.script as usize + 24;
    if !heap.read(shared, 0, bytes.get_mut(..length)?) {
        return None;
    }
    let field = |offset: u64| word_at(&bytes, offset as usize);
    let (map, script, name) = (field(0), field(layout.script), field(layout.name));
    if heap.kind_of_map(map) != Some(layout.types.shared) {
        return None;
    }
    let kind = heap.kind(script)?;
    // An object of any other type replaced the script, which was moved or discarded.
    let source = match kind {
        _ if kind == layout.types.script => FunctionSource::Script { address: script, id: heap.field(script, ID)? },
        _ if kind == layout.types.debug_info => FunctionSource::Debugged,
        _ if kind == layout.types.oddball => FunctionSource::Nothing,
        _ => return None,
    };
    let numbers = [field(layout.script + 8) & ((1 << 48) - 1), field(layout.script + 16) >> 32];
    Some((FunctionFields { map, name, source, numbers }, field(8)))
}

/// The suffix of a function's name that says that functions inlined into it may be executed instead.
pub const WITH_INLINED: &str = " [with inlined functions]";

/// The name shown for code of regular expressions.
const REGULAR_EXPRESSION: &str = "[regular expression]";

/// V8's name for anonymous functions.
const ANONYMOUS: &str = "<anonymous>";

impl KnownFunction {
    /// Whether the function has no name.
    pub(super) fn is_anonymous(&self) -> bool {
        self.texts.name == ANONYMOUS
    }

    /// The number of the entry for this function or those inlined into it.
    pub(super) fn with_inlined(&self, functions: &mut Functions) -> u32 {
        let FunctionName { name, file, first_line, with_inlined } = &*self.texts;
        let number = || functions.number(FunctionKind::V8, &format!("{name}{WITH_INLINED}"), file, *first_line);
        *with_inlined.get_or_init(number)
    }
}

impl Script {
    /// The line at an offset, 0 after the last known line end: the list may be incomplete for long scripts.
    fn line(&self, offset: u32) -> u32 {
        if self.ends.last().is_none_or(|last| *last < offset) {
            return 0;
        }
        let line = self.ends.partition_point(|end| *end < offset) as u32;
        line.saturating_add(1).saturating_add(self.first_line)
    }
}

/// Reads the name and the start position of a function that has variables. A `ScopeInfo` consists of a few numbers,
/// the names and kinds of the variables, the function's name (and where it is stored), the name that V8 inferred, and
/// the positions, unless they are among the first numbers. Other objects follow.
fn scope(scope: u64, heap: &mut Heap<'_, '_>) -> Option<(String, Option<u32>)> {
    let layout = heap.layout;
    if heap.kind(scope)? != layout.types.scope_info {
        return None;
    }
    let mut head = [0; 48];
    if !heap.read(scope, 8, &mut head) {
        return None;
    }
    /// Above this number the names are in a separate object (`kScopeInfoMaxInlinedLocalNamesSize`).
    const MOST_LOCALS: usize = 75;
    let offset = |word: u64| number(word).and_then(|value| u32::try_from(value).ok());
    let mut start = layout.positions_first.then(|| offset(word_at(&head, 24))).flatten();
    let locals = usize::try_from(number(word_at(&head, 16))?).ok()?;
    let words = if locals < MOST_LOCALS { locals * 2 } else { locals.saturating_add(1) };
    let first = layout.first_local.saturating_add(words);
    if first > 1 << 20 {
        return None;
    }
    let mut bytes = [0; 8 * 6];
    let at = 8 + 8 * first as u64;
    let length = 8 * (1..=6).rev().find(|count| heap.read(scope, at, &mut bytes[..8 * count]))?;
    let mut name = String::new();
    let mut before = None;
    for &word in bytes[..length].as_chunks::<8>().0 {
        let word = u64::from_le_bytes(word);
        if let Some(value) = number(word) {
            if !layout.positions_first
                && let Some(first) = before.take().filter(|first| *first < value)
            {
                start = start.or_else(|| u32::try_from(first).ok());
            }
            before = Some(value).filter(|value| *value >= 0);
            continue;
        }
        before = None;
        if heap.is_string(word) {
            if name.is_empty() {
                name = heap.string(word, MAX_NAME)?;
            }
        } else if start.is_some() || heap.kind(word).is_none_or(|kind| kind >= layout.types.scope_info) {
            break;
        }
    }
    // The name is valid only if the function still refers to it.
    let mut now = [0; 8 * 6];
    (heap.read(scope, at, &mut now[..length]) && now == bytes).then_some((name, start))
}

fn read_script(address: u64, id: u64, heap: &mut Heap<'_, '_>) -> Option<Script> {
    let fields = |heap: &mut Heap<'_, '_>| {
        let mut bytes = [0; 120];
        let places = [ID, NAME, heap.layout.source_url, FIRST_LINE, LINE_ENDS, SOURCE];
        heap.read(address, 0, &mut bytes).then(|| places.map(|offset| word_at(&bytes, offset as usize)))
    };
    let before = fields(heap)?;
    let [_, name, url, first_line, ends, source] = before;
    let mut file = String::new();
    for name in [name, url] {
        if file.is_empty() && heap.is_string(name) {
            file = heap.string(name, MAX_FILE)?;
        }
    }
    let first_line = number(first_line).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
    let ends = known_ends(ends, heap).or_else(|| count_ends(source, heap)).unwrap_or_default();
    // The strings are valid only if the script still refers to them.
    let script = Script { id, file: file.into(), first_line: first_line.min(1 << 30), ends };
    (before[0] == id && fields(heap)? == before).then_some(script)
}

/// Reads the line ends that V8 has computed. V8 computes them only when it needs them itself.
pub(super) fn known_ends(ends: u64, heap: &mut Heap<'_, '_>) -> Option<Vec<u32>> {
    if !is_object(ends) || heap.kind(ends)? != heap.layout.types.fixed_array {
        return None;
    }
    let ends: Option<Vec<u32>> =
        heap.elements(ends, MAX_LINES)?.into_iter().map(|end| u32::try_from(number(end)?).ok()).collect();
    ends.filter(|ends| !ends.is_empty() && ends.is_sorted())
}

/// Computes the line ends of a source: at ECMAScript's line terminators and at the end of the text.
pub(super) fn count_ends(source: u64, heap: &mut Heap<'_, '_>) -> Option<Vec<u32>> {
    let (mut ends, mut at, mut was_return) = (Vec::new(), 0u32, false);
    heap.characters(source, MAX_SOURCE, &mut |character| {
        if std::mem::take(&mut was_return) && character != u16::from(b'\n') {
            ends.push(at - 1);
        }
        match character {
            0x0a | 0x2028 | 0x2029 => ends.push(at),
            0x0d => was_return = true,
            _ => {}
        }
        at += 1;
        ends.len() < MAX_LINES
    })?;
    if was_return {
        ends.push(at - 1);
    }
    ends.push(at);
    Some(ends)
}
