//! Turns the sampler's batches into OTLP profiles.
//!
//! There is one profile for each mode: `wall/nanoseconds` or `cpu/nanoseconds`, with the same period type and the
//! configured period. A lowered rate shows in the values of samples and not in the period. Each observation has a
//! timestamp, and its weight as value. A run of equal blocked stacks is not repeated for every tick; it is divided only
//! where a window may end, see [`CUTS`].
//!
//! Addresses are those of the file (ELF virtual addresses), as the OpenTelemetry eBPF profiler sends them
//! (opentelemetry-ebpf-profiler `reporter/internal/pdata/generate.go`); mappings carry the build ids of
//! opentelemetry-specification `specification/profiles/mappings.md`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use profbridge_model::builder::Any;
use profbridge_model::dictionary::Invalid;
use profbridge_model::thread::{STATE, ThreadState};
use profbridge_model::{AttributeSetId, Builder, LinkId, Profile, Profiles, StackId};
use profbridge_sampler::message::{self, Batch, Context, Mapping, Mode, Sample, Stack, Thread, Trust};
use profbridge_symbolizer::{SymbolFrame, Symbols};

use self::interned::InternedProcess;
pub use self::runs::CUTS;
use self::runs::{TimedObservation, join_runs, pieces};

mod frame_type;
mod interned;
mod runs;

/// The sample attribute for a stack that does not reach the root: `truncated` or `guessed`.
pub const TRUST_ATTRIBUTE: &str = "profbridge.stack.trust";

/// The sample attribute with a thread's pointer: glibc's `pthread_t`, which Python reports as a thread's ident.
pub const POINTER_ATTRIBUTE: &str = profbridge_model::thread::POINTER;

/// The name of the instrumentation scope of all profiles.
const SCOPE: &str = env!("CARGO_PKG_NAME");

/// An attribute of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The key.
    pub key: Cow<'static, str>,
    /// The value.
    pub value: ResourceValue,
}

/// The value of a resource attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceValue {
    /// A string.
    Text(String),
    /// An integer.
    Int(i64),
    /// A list of strings.
    List(Vec<String>),
}

pub(crate) fn begin_resource(builder: &mut Builder, attributes: &[Attribute]) {
    let lists = attributes.iter().map(|attribute| match &attribute.value {
        ResourceValue::List(texts) => texts.iter().map(|text| Any::Str(text)).collect(),
        ResourceValue::Text(_) | ResourceValue::Int(_) => Vec::new(),
    });
    let lists: Vec<Vec<Any<'_>>> = lists.collect();
    let all = attributes.iter().zip(&lists).map(|(Attribute { key, value }, list)| {
        let value = match value {
            ResourceValue::Text(text) => Any::Str(text),
            ResourceValue::Int(number) => Any::Int(*number),
            ResourceValue::List(_) => Any::Array(list),
        };
        (&**key, value)
    });
    builder.resource(&all.collect::<Vec<_>>());
}

/// Looks up the names of locations of one process.
pub trait SymbolNames {
    /// The functions at a location in code, innermost first; `None` if no name is known.
    fn symbols(&self, location: message::Location) -> Option<Arc<Symbols>>;
}

/// The explanation that a location has in place of code, see [`message::Location::explanation`].
fn explanation(location: message::Location) -> Option<Arc<Symbols>> {
    let name = Arc::<str>::from(location.explanation()?);
    let frame = SymbolFrame { function: Arc::clone(&name), system_name: name, file: None, line: 0, column: 0 };
    Some(Arc::new(Symbols::from(vec![frame])))
}

/// Finds no names of code.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nameless;

impl SymbolNames for Nameless {
    fn symbols(&self, _location: message::Location) -> Option<Arc<Symbols>> {
        None
    }
}

/// A process, with the data that its profiles need.
#[derive(Clone, Copy)]
pub struct AssembledProcess<'a> {
    /// The attributes of the process's resource.
    pub resource: &'a [Attribute],
    /// The process's mappings, by [`message::Mapping::index`].
    pub mappings: &'a [Mapping],
    /// The functions of the process's interpreters, by their numbers ([`message::Event::Functions`]).
    pub functions: &'a [message::Function],
    /// The keys of the attributes of the process's threads ([`message::Target::thread_attributes`]).
    pub thread_attributes: &'a [String],
    /// Looks up the names of the process's locations.
    pub names: &'a dyn SymbolNames,
}

/// Combines the sampler's batches into one batch of profiles, process by process.
#[derive(Default)]
pub struct Assembler {
    builder: Builder,
    malformed: u64,
    excessive: u64,
    /// The number of additional pieces into which runs were divided: a run in three pieces counts as two.
    pieces: u64,
}

/// The assembled profiles, and what was left out.
#[derive(Debug)]
pub struct Assembled {
    /// The batch.
    pub profiles: Profiles,
    /// How many observations were left out because they refer to entries or times that do not exist.
    pub malformed: u64,
    /// How many runs were cut because all runs together had too many pieces.
    pub excessive: u64,
}

impl Assembler {
    /// Adds the batches of a process.
    pub fn process(&mut self, subject: AssembledProcess<'_>, batches: &[Batch]) {
        begin_resource(&mut self.builder, subject.resource);
        self.builder.scope(SCOPE, env!("CARGO_PKG_VERSION"));
        let mut interned = InternedProcess::default();
        let mut kinds: Vec<(Mode, u64)> = Vec::new();
        for batch in batches {
            let kind = (batch.mode, batch.period_nano);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        for (mode, period) in kinds {
            let of = batches.iter().filter(|batch| (batch.mode, batch.period_nano) == (mode, period));
            self.profile(subject, &mut interned, mode, period, of);
        }
    }

    /// Completes the batch.
    ///
    /// # Errors
    ///
    /// The batch is larger than 4 GiB.
    pub fn finish(self) -> Result<Assembled, Invalid> {
        let Self { builder, malformed, excessive, .. } = self;
        Ok(Assembled { profiles: builder.finish()?, malformed, excessive })
    }

    fn profile<'a>(
        &mut self,
        subject: AssembledProcess<'_>,
        interned: &mut InternedProcess,
        mode: Mode,
        period: u64,
        batches: impl Iterator<Item = &'a Batch>,
    ) {
        let mut rows = Rows::default();
        for batch in batches {
            self.malformed += rows.add_batch(&mut self.builder, subject, interned, batch);
        }
        let kind = match mode {
            Mode::Wall => "wall",
            Mode::Cpu => "cpu",
        };
        let sample_type = self.builder.value_type(kind, "nanoseconds");
        let start = rows.first.unwrap_or_default();
        self.builder.profile(Profile {
            sample_type,
            period_type: sample_type,
            period: signed(period),
            time_unix_nano: start,
            duration_nano: rows.last.saturating_sub(start),
            ..Profile::default()
        });
        let (mut times, mut values) = (Vec::new(), Vec::new());
        let Rows { keys, mut observations, .. } = rows;
        join_runs(&mut observations);
        observations.sort_unstable_by_key(|one| (one.row, one.time, one.weight));
        for row in observations.chunk_by(|one, next| one.row == next.row) {
            let Some(&(stack, attributes, link)) = row.first().and_then(|first| keys.get(first.row as usize)) else {
                continue;
            };
            times.clear();
            values.clear();
            for &TimedObservation { time, weight, .. } in row {
                for (position, (time, weight)) in pieces(time, weight).enumerate() {
                    if position > 0 {
                        if self.pieces == MAX_ALL_PIECES {
                            self.excessive += 1;
                            break;
                        }
                        self.pieces += 1;
                    }
                    times.push(time);
                    values.push(signed(weight));
                }
            }
            self.builder.sample(stack, attributes, link, &times, &values);
        }
    }
}

/// No sample is later than this: the year 2262, where signed 64-bit nanoseconds end.
const LAST_MOMENT: u64 = i64::MAX as u64;

/// How many pieces all runs of a batch together may have, not counting the first of each run: 56 MiB at 28 bytes. A
/// compromised sampler could claim an hour for each of many samples; 20,000 threads that are blocked for 45 s need 1.8
/// million.
const MAX_ALL_PIECES: u64 = 2 << 20;

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The key that distinguishes OTLP samples: stack, attributes and span.
type RowKey = (Option<StackId>, Option<AttributeSetId>, Option<LinkId>);

/// Observations by stack, attributes and span, because OTLP wants one sample for each (opentelemetry-proto
/// `profiles.proto`, `Sample`).
#[derive(Default)]
struct Rows {
    keys: Vec<RowKey>,
    index: HashMap<RowKey, u32>,
    observations: Vec<TimedObservation>,
    first: Option<u64>,
    last: u64,
}

impl Rows {
    /// Adds a batch. Returns how many observations were left out.
    fn add_batch(
        &mut self,
        builder: &mut Builder,
        subject: AssembledProcess<'_>,
        interned: &mut InternedProcess,
        batch: &Batch,
    ) -> u64 {
        let Batch { process: _, period_nano: _, mode, threads, locations, stacks, contexts, samples } = batch;
        let locations: Vec<_> =
            locations.iter().map(|&location| interned.location(builder, subject, location)).collect();
        let stacks: Vec<_> = stacks
            .iter()
            .map(|Stack { trust, locations: indices }| {
                let ids: Option<Vec<_>> = indices.iter().map(|&at| locations.get(at as usize).copied()).collect();
                ids.map(|mut ids| {
                    // Consecutive hidden kernel functions are shown as one frame, since their number has no meaning.
                    ids.dedup_by(|id, before| id == before && id.is_some() && *id == interned.nameless_kernel);
                    (builder.stack(&ids), *trust)
                })
            })
            .collect();
        let links: Vec<_> = contexts
            .iter()
            .map(|context| context.link.and_then(|link| builder.link(link.trace_id, link.span_id)))
            .collect();
        let mut sets = HashMap::new();
        let mut malformed = 0;
        for &Sample { thread, stack, context, time_unix_nano, weight_nano, observations: _, blocked } in samples {
            // The end of a profile's range is exclusive.
            let end = time_unix_nano.checked_add(weight_nano.max(1)).filter(|&end| end <= LAST_MOMENT);
            let (Some(of), Some(Some((stack, trust))), Some(end)) =
                (threads.get(thread as usize), stacks.get(stack as usize), end)
            else {
                malformed += 1;
                continue;
            };
            let link = context.and_then(|at| links.get(at as usize).copied().flatten());
            let worked = context.and_then(|at| contexts.get(at as usize)).filter(|of| !of.attributes.is_empty());
            let state = state_of(*mode, blocked);
            let set = *sets
                .entry((thread, *trust, state, worked.and(context)))
                .or_insert_with(|| attributes_of(builder, of, *trust, state, worked, subject.thread_attributes));
            let key = (*stack, set, link);
            let row = *self.index.entry(key).or_insert_with(|| {
                self.keys.push(key);
                self.keys.len() as u32 - 1
            });
            self.observations.push(TimedObservation { thread: of.id, row, time: time_unix_nano, weight: weight_nano });
            self.first = Some(self.first.map_or(time_unix_nano, |first| first.min(time_unix_nano)));
            self.last = self.last.max(end);
        }
        malformed
    }
}

/// The state of a thread during a sample. In wall mode it is either running or waiting; in cpu mode it was running,
/// even if it was blocked when the sample was taken, and the type of the profile expresses that.
fn state_of(mode: Mode, blocked: bool) -> Option<ThreadState> {
    match mode {
        Mode::Cpu => None,
        Mode::Wall if blocked => Some(ThreadState::Waiting),
        Mode::Wall => Some(ThreadState::Running),
    }
}

fn attributes_of(
    builder: &mut Builder,
    thread: &Thread,
    trust: Trust,
    state: Option<ThreadState>,
    worked: Option<&Context>,
    keys: &[String],
) -> Option<AttributeSetId> {
    let Thread { id, namespace_id, name, pointer } = thread;
    let id = if *namespace_id == 0 { *id } else { *namespace_id };
    let mut attributes: Vec<(&str, Any<'_>)> = vec![("thread.id", Any::Int(id.into()))];
    if !name.is_empty() {
        attributes.push(("thread.name", Any::Str(name)));
    }
    if *pointer != 0 {
        attributes.push((POINTER_ATTRIBUTE, Any::Int(*pointer as i64)));
    }
    if let Some(state) = state {
        attributes.push((STATE, state.name().into()));
    }
    match trust {
        Trust::Complete => {}
        Trust::MissingCallers => attributes.push((TRUST_ATTRIBUTE, "missing_callers".into())),
        Trust::Truncated => attributes.push((TRUST_ATTRIBUTE, "truncated".into())),
        Trust::Guessed => attributes.push((TRUST_ATTRIBUTE, "guessed".into())),
    }
    for (key, value) in worked.into_iter().flat_map(|context| &context.attributes) {
        if let Some(key) = keys.get(*key as usize) {
            attributes.push((key, Any::Str(value)));
        }
    }
    builder.attributes(&attributes)
}

#[cfg(test)]
mod tests;
