//! Batches in packets: tables become columns, and back. Decoding checks every index and every length.

use super::decode::{at_most, mode, points};
use super::encode::cut;
use super::numbers::Numbered;
use super::wire::INTERPRETED;
use super::{MAX_STACK, MAX_THREAD_NAME, MAX_WEIGHT, Violation, wire};
use crate::context::{MAX_ALLOWED, MAX_ATTRIBUTES, MAX_VALUE};
use crate::message::{Batch, Context, Location, Mode, ProcessId, Sample, SpanLink, Stack, Thread, Trust};

/// How a context without a span travels.
const NO_SPAN: SpanLink = SpanLink { trace_id: [0; 16], span_id: [0; 8] };

/// The bytes of the ids of a context.
const IDS: usize = 24;

pub(super) fn encode_batch(batch: &Batch) -> wire::Batch {
    let Batch { process, period_nano, mode, threads, locations, stacks, contexts, samples } = batch;
    let mut encoded = wire::Batch {
        process: process.0,
        period_nano: *period_nano,
        cpu: *mode == Mode::Cpu,
        ..wire::Batch::default()
    };
    for Thread { id, namespace_id, name, pointer } in threads {
        encoded.thread_ids.push(*id);
        encoded.thread_namespace_ids.push(*namespace_id);
        encoded.thread_names.push(cut(name, MAX_THREAD_NAME));
        encoded.thread_pointers.push(*pointer);
    }
    for location in locations {
        let (mapping, address) = match *location {
            Location::Native { mapping, address } => (mapping.map_or(0, |mapping| mapping.saturating_add(1)), address),
            Location::Compiled { address, .. } => (0, address),
            Location::Interpreted { function, line } => (function | INTERPRETED, u64::from(line)),
        };
        encoded.location_mappings.push(mapping);
        encoded.location_addresses.push(address);
        encoded.location_map_lengths.push(location.map_length());
    }
    for Stack { trust, locations } in stacks {
        encoded.stack_trusts.push(trust.number());
        encoded.stack_lengths.push(u32::try_from(locations.len()).unwrap_or(u32::MAX));
        encoded.stack_locations.extend_from_slice(locations);
    }
    for Context { link, attributes } in contexts {
        let SpanLink { trace_id, span_id } = link.unwrap_or(NO_SPAN);
        encoded.context_ids.extend_from_slice(&trace_id);
        encoded.context_ids.extend_from_slice(&span_id);
        encoded.context_lengths.push(u32::try_from(attributes.len()).unwrap_or(u32::MAX));
        for (key, value) in attributes {
            encoded.context_keys.push(*key);
            encoded.context_values.push(cut(value, MAX_VALUE));
        }
    }
    let mut before = 0;
    for &Sample { thread, stack, context, time_unix_nano, weight_nano, observations, blocked } in samples {
        encoded.sample_threads.push(thread);
        encoded.sample_stacks.push(stack);
        encoded.sample_times.push(time_unix_nano.wrapping_sub(before).cast_signed());
        before = time_unix_nano;
        encoded.sample_weights.push(weight_nano.min(MAX_WEIGHT));
        encoded.sample_observations.push(observations);
        encoded.sample_blocked.push(blocked);
        encoded.sample_contexts.push(context.map_or(0, |context| context.saturating_add(1)));
    }
    encoded
}

pub(super) fn decode_batch(mut batch: wire::Batch) -> Result<Batch, Violation> {
    check_columns(&batch)?;
    if batch.period_nano == 0 || batch.period_nano > MAX_WEIGHT {
        return Err(Violation::Nonsense("a period of nothing or more than a day"));
    }
    for name in &batch.thread_names {
        at_most("the length of a thread's name", name.len(), MAX_THREAD_NAME)?;
    }
    let samples = decode_samples(&batch)?;
    let stacks = decode_stacks(&batch)?;
    let contexts = decode_contexts(&mut batch)?;
    let rest = batch.thread_ids.iter().zip(&batch.thread_namespace_ids).zip(&batch.thread_pointers);
    let thread = |(name, ((&id, &namespace_id), &pointer))| Thread { id, namespace_id, name, pointer };
    let location = |((&mapping, &address), &map_length): ((&u32, &u64), &u32)| match mapping & !INTERPRETED {
        function if mapping & INTERPRETED != 0 => match u32::try_from(address) {
            Ok(line) => Ok(Location::Interpreted { function, line }),
            Err(_) => Err(Violation::Nonsense("a line beyond 32 bits")),
        },
        mapping => Ok(Location::Native { mapping: mapping.checked_sub(1), address }.with_map(map_length)),
    };
    let locations = batch.location_mappings.iter().zip(&batch.location_addresses).zip(&batch.location_map_lengths);
    let locations = locations.map(location);
    Ok(Batch {
        process: ProcessId(batch.process),
        period_nano: batch.period_nano,
        mode: mode(batch.cpu),
        threads: batch.thread_names.into_iter().zip(rest).map(thread).collect(),
        locations: locations.collect::<Result<_, _>>()?,
        stacks,
        contexts,
        samples,
    })
}

/// Whether the columns of each table have one length.
fn check_columns(batch: &wire::Batch) -> Result<(), Violation> {
    let same = |what, count: usize, columns: &[usize]| {
        if columns.iter().all(|column| *column == count) { Ok(()) } else { Err(Violation::Nonsense(what)) }
    };
    let threads = [batch.thread_namespace_ids.len(), batch.thread_names.len(), batch.thread_pointers.len()];
    same("threads whose columns differ in length", batch.thread_ids.len(), &threads)?;
    let locations = [batch.location_mappings.len(), batch.location_map_lengths.len()];
    same("locations whose columns differ in length", batch.location_addresses.len(), &locations)?;
    same("stacks whose columns differ in length", batch.stack_trusts.len(), &[batch.stack_lengths.len()])?;
    let samples = [
        batch.sample_stacks.len(),
        batch.sample_times.len(),
        batch.sample_weights.len(),
        batch.sample_observations.len(),
        batch.sample_blocked.len(),
        batch.sample_contexts.len(),
    ];
    let contexts = [batch.context_ids.len() / IDS, batch.context_ids.len().div_ceil(IDS)];
    same("contexts whose columns differ in length", batch.context_lengths.len(), &contexts)?;
    same("attributes whose columns differ in length", batch.context_keys.len(), &[batch.context_values.len()])?;
    same("samples whose columns differ in length", batch.sample_threads.len(), &samples)
}

fn decode_stacks(batch: &wire::Batch) -> Result<Vec<Stack>, Violation> {
    let mut stacks = Vec::with_capacity(batch.stack_trusts.len());
    let mut left = batch.stack_locations.as_slice();
    for (&trust, &length) in batch.stack_trusts.iter().zip(&batch.stack_lengths) {
        at_most("the length of a stack", length as usize, MAX_STACK)?;
        let Some((stack, behind)) = left.split_at_checked(length as usize) else {
            return Err(Violation::Nonsense("stacks that are longer than their locations"));
        };
        left = behind;
        for location in stack {
            points("a stack's location", *location, batch.location_addresses.len())?;
        }
        let trust = Trust::from_number(trust).ok_or(Violation::Nonsense("an unknown trust"))?;
        stacks.push(Stack { trust, locations: stack.to_vec() });
    }
    if left.is_empty() { Ok(stacks) } else { Err(Violation::Nonsense("locations that belong to no stack")) }
}

fn decode_contexts(batch: &mut wire::Batch) -> Result<Vec<Context>, Violation> {
    let mut contexts = Vec::with_capacity(batch.context_lengths.len());
    let mut keys = batch.context_keys.iter();
    let mut values = std::mem::take(&mut batch.context_values).into_iter();
    for (ids, &length) in batch.context_ids.as_chunks::<IDS>().0.iter().zip(&batch.context_lengths) {
        at_most("the number of a context's attributes", length as usize, MAX_ALLOWED)?;
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&ids[..16]);
        span_id.copy_from_slice(&ids[16..]);
        let link = SpanLink { trace_id, span_id };
        let is_span = trace_id != NO_SPAN.trace_id && span_id != NO_SPAN.span_id;
        if !is_span && link != NO_SPAN {
            return Err(Violation::Nonsense("a span with a half of its ids"));
        }
        let mut attributes: Vec<(u32, String)> = Vec::with_capacity(length as usize);
        let mut size = 0;
        for _ in 0..length {
            let (Some(&key), Some(value)) = (keys.next(), values.next()) else {
                return Err(Violation::Nonsense("contexts with more attributes than there are"));
            };
            at_most("the length of an attribute's value", value.len(), MAX_VALUE)?;
            size += value.len();
            at_most("the size of a context's attributes", size, MAX_ATTRIBUTES)?;
            if attributes.last().is_some_and(|(before, _)| *before >= key) {
                return Err(Violation::Nonsense("attributes of a context that are not in order"));
            }
            attributes.push((key, value));
        }
        contexts.push(Context { link: is_span.then_some(link), attributes });
    }
    if keys.next().is_some() {
        return Err(Violation::Nonsense("attributes that belong to no context"));
    }
    Ok(contexts)
}

fn decode_samples(batch: &wire::Batch) -> Result<Vec<Sample>, Violation> {
    let mut samples = Vec::with_capacity(batch.sample_threads.len());
    let mut time = 0u64;
    let mut last = vec![0; batch.thread_ids.len()];
    for index in 0..batch.sample_threads.len() {
        let (thread, stack) = (batch.sample_threads[index], batch.sample_stacks[index]);
        points("a sample's thread", thread, batch.thread_ids.len())?;
        points("a sample's stack", stack, batch.stack_trusts.len())?;
        time = time.wrapping_add_signed(batch.sample_times[index]);
        if i64::try_from(time).is_err() {
            return Err(Violation::Nonsense("a sample from after the year 2262"));
        }
        if std::mem::replace(&mut last[thread as usize], time) > time {
            return Err(Violation::Nonsense("samples of a thread that are not in order"));
        }
        let weight_nano = batch.sample_weights[index];
        if weight_nano > MAX_WEIGHT {
            return Err(Violation::Nonsense("a sample that stands for more than a day"));
        }
        let (observations, blocked) = (batch.sample_observations[index], batch.sample_blocked[index]);
        let context = batch.sample_contexts[index].checked_sub(1);
        if let Some(context) = context {
            points("a sample's context", context, batch.context_lengths.len())?;
        }
        samples.push(Sample { thread, stack, context, time_unix_nano: time, weight_nano, observations, blocked });
    }
    Ok(samples)
}
