//! Removes the frames that a profile's `drop_frames` and `keep_frames` hide.
//!
//! If a profiler records its own functions, such as an allocator's in an allocation profile, the profile names them in
//! `drop_frames` (google/pprof `proto/profile.proto`). A frame whose function matches `drop_frames` but not
//! `keep_frames` is removed with all its callees, unless no frame above it is kept, as in `go tool pprof` (google/pprof
//! `profile/prune.go`, `RemoveUninteresting` and `Prune`). Patterns match the whole name, without a leading `.` and
//! without arguments; inlined functions below the outermost match are removed with it.
//!
//! Only output that displays frames uses this. Forwarded profiles keep all frames and the patterns.
//!
//! The patterns have RE2's syntax, parsed by `regex-lite`, which has no Unicode classes (`\pL`). Patterns that cannot
//! be parsed or would take too long are not applied, but counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use profbridge_model::{
    AttributeSetId, ByteRange, Dictionary, FunctionId, Location, LocationId, Profiles, StackId, Value, varint,
};
use regex_lite::{Regex, RegexBuilder};

use super::keys::{DROP_FRAMES, KEEP_FRAMES};

/// The maximum length of a pattern, in bytes. tcmalloc's has a thousand.
const LONGEST_PATTERN: usize = 4096;

/// The maximum size of a compiled pattern, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;

/// The maximum number of bytes of a name that are matched.
const LONGEST_NAME: usize = 1024;

/// The maximum work per batch: bytes of patterns times bytes of names, the worst case of matching. A pattern of a
/// thousand bytes and ten thousand functions of fifty bytes need half of it.
const MOST_WORK: u64 = 1 << 30;

/// A batch without its hidden frames.
#[derive(Debug)]
pub struct Pruned {
    /// The batch, with the same samples.
    pub batch: Profiles,
    /// Number of patterns that were not applied, or not to all functions.
    pub not_applied: u64,
}

/// Removes hidden frames. Returns `None` if no profile hides frames.
pub fn pruned(batch: &Profiles) -> Option<Pruned> {
    let dictionary = &**batch.dictionary();
    let mut patterns: BTreeMap<AttributeSetId, Pruning<'_>> = BTreeMap::new();
    let mut left = RemainingWork { work: MOST_WORK, not_applied: 0 };
    for set in batch.profiles().filter(|profile| !profile.samples.is_empty()).filter_map(|profile| profile.attributes) {
        if !patterns.contains_key(&set)
            && let Some(drop) = text(dictionary, set, DROP_FRAMES)
        {
            patterns.insert(set, Pruning::new(dictionary, drop, text(dictionary, set, KEEP_FRAMES), &mut left));
        }
    }
    if patterns.is_empty() {
        return None;
    }
    let mut tables = dictionary.tables().clone();
    let mut columns = batch.columns().clone();
    let mut made =
        NewElements { bytes: Vec::new(), base: tables.buffer.len(), locations: Vec::new(), stacks: Vec::new() };
    for profile in batch.profiles() {
        let Some(pruning) = profile.attributes.and_then(|set| patterns.get_mut(&set)) else { continue };
        for row in profile.samples.clone() {
            let stack = &mut columns.ids[row as usize].stack;
            if let Some(id) = *stack {
                *stack = pruning.stack(id, &mut made, &mut left);
            }
        }
    }
    tables.locations.append(&mut made.locations);
    tables.stacks.append(&mut made.stacks);
    tables.buffer.append(&made.bytes);
    // The appended elements refer to existing ones, so this only fails beyond 4 GiB.
    let dictionary = Dictionary::new(tables).ok()?;
    let mut pruned = Profiles::new(Arc::new(dictionary), batch.resources().to_vec(), columns).ok()?;
    pruned.peer.clone_from(&batch.peer);
    pruned.relayed = batch.relayed;
    pruned.window.clone_from(&batch.window);
    Some(Pruned { batch: pruned, not_applied: left.not_applied })
}

/// A pattern of a profile; `None` if it has none.
fn text<'a>(dictionary: &'a Dictionary, set: AttributeSetId, key: &str) -> Option<&'a str> {
    match dictionary.find(Some(set), key) {
        Some(Value::String(text)) => Some(dictionary.string(*text)).filter(|text| !text.is_empty()),
        _ => None,
    }
}

/// The remaining work of a batch, and the number of patterns that exceeded it.
struct RemainingWork {
    work: u64,
    not_applied: u64,
}

/// New elements for the tables.
struct NewElements {
    bytes: Vec<u8>,
    /// Offset of these bytes in the final buffer.
    base: usize,
    locations: Vec<Location>,
    stacks: Vec<ByteRange>,
}

/// The result of matching a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocationMatch {
    /// The location is kept.
    Stays,
    /// The location is removed, with all frames below it.
    Goes,
    /// The frames below the location are removed; this copy without the inlined lines replaces it.
    Ends(LocationId),
}

/// The patterns of a profile, and their results so far.
struct Pruning<'a> {
    dictionary: &'a Dictionary,
    drop: Option<Pattern>,
    keep: Option<Pattern>,
    functions: HashMap<FunctionId, bool>,
    locations: HashMap<LocationId, LocationMatch>,
    stacks: HashMap<StackId, Option<StackId>>,
}

struct Pattern {
    regex: Regex,
    length: u64,
}

impl Pattern {
    fn new(text: &str, left: &mut RemainingWork) -> Option<Self> {
        let compile = |text: &str| RegexBuilder::new(text).size_limit(LARGEST_PATTERN).build().ok();
        let regex = (text.len() <= LONGEST_PATTERN).then(|| compile(&format!("^(?:{text})$"))).flatten();
        left.not_applied += u64::from(regex.is_none());
        Some(Self { regex: regex?, length: text.len() as u64 })
    }

    fn fits(&self, name: &str, left: &mut RemainingWork) -> bool {
        match left.work.checked_sub(self.length * name.len() as u64) {
            Some(work) => {
                left.work = work;
                self.regex.is_match(name)
            }
            None => {
                // Counts the patterns once per batch, however many functions there are.
                left.not_applied += u64::from(left.work > 0);
                left.work = 0;
                false
            }
        }
    }
}

impl<'a> Pruning<'a> {
    fn new(dictionary: &'a Dictionary, drop: &str, keep: Option<&str>, left: &mut RemainingWork) -> Self {
        let mut drop = Pattern::new(drop, left);
        let asked_to_keep = keep.is_some();
        let keep = keep.and_then(|keep| Pattern::new(keep, left));
        if asked_to_keep && keep.is_none() {
            // Without a valid keep pattern no frame may be removed.
            drop = None;
        }
        let (functions, locations, stacks) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { dictionary, drop, keep, functions, locations, stacks }
    }

    fn goes(&mut self, function: FunctionId, left: &mut RemainingWork) -> bool {
        if let Some(&known) = self.functions.get(&function) {
            return known;
        }
        let name = simplified(self.dictionary.string(self.dictionary.function(function).name));
        let fits = |pattern: &Option<Pattern>, left: &mut RemainingWork| {
            pattern.as_ref().is_some_and(|pattern| !name.is_empty() && pattern.fits(name, left))
        };
        let goes = fits(&self.drop, left) && !fits(&self.keep, left);
        self.functions.insert(function, goes);
        goes
    }

    fn location(&mut self, id: LocationId, made: &mut NewElements, left: &mut RemainingWork) -> LocationMatch {
        if let Some(&known) = self.locations.get(&id) {
            return known;
        }
        let location = self.dictionary.location(id);
        let lines = self.dictionary.lines(location);
        let outermost = lines.iter().rposition(|line| line.function.is_some_and(|id| self.goes(id, left)));
        let fate = match outermost {
            None => LocationMatch::Stays,
            Some(line) if line + 1 == lines.len() => LocationMatch::Goes,
            Some(line) => {
                let below = line as u32 + 1;
                let shorter = Location {
                    lines_start: location.lines_start + below,
                    lines_len: location.lines_len - below,
                    ..*location
                };
                let number = self.dictionary.tables().locations.len() + made.locations.len();
                made.locations.push(shorter);
                u32::try_from(number).ok().and_then(LocationId::new).map_or(LocationMatch::Stays, LocationMatch::Ends)
            }
        };
        self.locations.insert(id, fate);
        fate
    }

    fn stack(&mut self, id: StackId, made: &mut NewElements, left: &mut RemainingWork) -> Option<StackId> {
        if let Some(&known) = self.stacks.get(&id) {
            return known;
        }
        let frames: Vec<Option<LocationId>> = self.dictionary.stack(Some(id)).collect();
        let fates: Vec<LocationMatch> = frames
            .iter()
            .map(|frame| frame.map_or(LocationMatch::Stays, |frame| self.location(frame, made, left)))
            .collect();
        // Searches from the root: the first frame to remove below a frame that is kept.
        let root = fates.iter().rposition(|&fate| fate == LocationMatch::Stays);
        let first = root.and_then(|root| fates[..root].iter().rposition(|&fate| fate != LocationMatch::Stays));
        let from = match first {
            Some(first) if fates[first] == LocationMatch::Goes => first + 1,
            Some(first) => first,
            None => 0,
        };
        let pruned = if from == 0 && !fates.iter().any(|fate| matches!(fate, LocationMatch::Ends(_))) {
            Some(id)
        } else {
            let start = made.bytes.len();
            for (frame, fate) in frames[from..].iter().zip(&fates[from..]) {
                let frame = if let LocationMatch::Ends(shorter) = fate { Some(*shorter) } else { *frame };
                varint::put(&mut made.bytes, u64::from(LocationId::wire(frame)));
            }
            let number = self.dictionary.tables().stacks.len() + made.stacks.len();
            let place = u32::try_from(made.base + start).unwrap_or(u32::MAX);
            made.stacks.push(ByteRange { start: place, len: (made.bytes.len() - start) as u32 });
            u32::try_from(number).ok().and_then(StackId::new)
        };
        self.stacks.insert(id, pruned);
        pruned
    }
}

/// A name in the form that patterns are matched against.
fn simplified(name: &str) -> &str {
    let name = name.strip_prefix('.').unwrap_or(name);
    let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
    let name = &name[..end];
    let mut from = 0;
    while let Some(found) = name[from..].find('(') {
        let at = from + found;
        if name[at..].starts_with(ANONYMOUS) {
            from = at + ANONYMOUS.len();
        } else if name[..at].ends_with("operator") && name[at..].starts_with("()") {
            from = at + 2;
        } else {
            return &name[..at];
        }
    }
    name
}

/// C++'s name of an unnamed namespace.
const ANONYMOUS: &str = "(anonymous namespace)";

#[cfg(test)]
mod tests {
    use profbridge_model::{Builder, Function, Line, Profile};

    use super::*;

    /// The remaining stacks, root first; each location as its functions, innermost first.
    fn shown(drop: &str, keep: &str, stacks: &[&[&[&str]]]) -> (Vec<Vec<String>>, u64) {
        let mut builder = Builder::new();
        let attributes = builder.attributes(&[(DROP_FRAMES, drop.into()), (KEEP_FRAMES, keep.into())]);
        builder.profile(Profile { attributes, ..Profile::default() });
        for stack in stacks {
            let mut location = |functions: &&[&str]| {
                let line = |builder: &mut Builder, name: &&str| {
                    let name = builder.string(name);
                    Line { function: builder.function(Function { name, ..Function::default() }), line: 1, column: 0 }
                };
                let lines: Vec<Line> = functions.iter().map(|name| line(&mut builder, name)).collect();
                builder.location(Location::default(), &lines)
            };
            let leaf_first: Vec<_> = stack.iter().rev().map(&mut location).collect();
            let stack = builder.stack(&leaf_first);
            builder.sample(stack, None, None, &[], &[1]);
        }
        let batch = builder.finish().unwrap();
        let Some(Pruned { batch, not_applied }) = pruned(&batch) else { return (Vec::new(), 0) };
        assert_eq!(batch.observations(), stacks.len() as u64);
        let dictionary = batch.dictionary();
        let named = |id: LocationId| {
            let lines = dictionary.lines(dictionary.location(id)).iter().filter_map(|line| line.function);
            lines.map(|id| dictionary.string(dictionary.function(id).name)).collect::<Vec<_>>().join("<")
        };
        let rows = 0..stacks.len() as u32;
        let shown = rows.map(|row| {
            let mut frames: Vec<_> = dictionary.stack(batch.sample(row).stack).flatten().map(named).collect();
            frames.reverse();
            frames
        });
        (shown.collect(), not_applied)
    }

    /// Guarantees: a matching frame is removed with its callees, but only below the first frame that is kept; a pattern
    /// has to match the whole name without arguments; `keep_frames` takes precedence; inlined functions are removed
    /// separately.
    /// rule: otep-0239#drop-frames
    #[test]
    fn frames() {
        let drop = "malloc|tc_.*|ns::\\(anonymous namespace\\)::f";
        for (stack, left) in [
            (&[&["main"][..], &["work"], &["malloc"], &["grow"]][..], &["main", "work"][..]),
            (&[&["tc_start"], &["main"], &["mallocs"], &["tc_new(int)"]], &["tc_start", "main", "mallocs"]),
            (&[&["main"], &["tc_keep"], &["work"]], &["main", "tc_keep", "work"]),
            (&[&["malloc"], &["tc_new"]], &["malloc", "tc_new"]),
            (&[&["main"], &["malloc", "work"], &["grow"]], &["main", "work"]),
            (&[&["main"], &["work", "malloc"], &["grow"]], &["main"]),
            (&[&["main"], &["ns::(anonymous namespace)::f(int)"], &["g"]], &["main"]),
            (&[&["main"], &[".malloc"]], &["main"]),
            (&[&["main"], &["work"]], &["main", "work"]),
        ] {
            assert_eq!(shown(drop, "tc_keep", &[stack]), (vec![left.iter().map(|s| (*s).to_owned()).collect()], 0));
        }
        assert_eq!(shown("", "x", &[&[&["main"]]]), (Vec::new(), 0));
    }

    /// Guarantees: an invalid drop pattern removes nothing and is counted, and so does an invalid keep pattern. A
    /// pattern that would take too long is counted once.
    /// rule: otep-0239#drop-frames
    #[test]
    fn patterns_that_are_not_applied() {
        let all = vec![vec!["main".to_owned(), "x".to_owned()]];
        let stack: &[&[&[&str]]] = &[&[&["main"], &["x"]]];
        let nested = "(".repeat(1000) + &")".repeat(1000);
        for pattern in ["(", "\\pL", "a{1000}{1000}{1000}", &nested, &"x|".repeat(3000)] {
            assert_eq!(shown(pattern, "", stack), (all.clone(), 1), "{pattern:.20}");
        }
        assert_eq!(shown("x", "(", stack), (all, 1));
        let name = "y".repeat(LONGEST_NAME);
        let long = format!("{}|x", "y*".repeat(LONGEST_PATTERN / 2 - 1));
        let pattern = Pattern::new(&long, &mut RemainingWork { work: 0, not_applied: 0 }).unwrap();
        let mut left = RemainingWork { work: 4_500_000, not_applied: 0 };
        assert!(pattern.fits(&name, &mut left));
        assert!(!pattern.fits(&name, &mut left) && !pattern.fits(&name, &mut left));
        assert_eq!(left.not_applied, 1);
    }

    /// Guarantees: names are simplified as in google/pprof.
    #[test]
    fn simplified_names() {
        for (name, simple) in [
            (".f", "f"),
            ("f(int, (x))", "f"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("X::operator()(int)", "X::operator()"),
            ("main.(*Cart).Total", "main."),
            ("", ""),
        ] {
            assert_eq!(simplified(name), simple);
        }
    }
}
