//! The memory limits of a request, checked before anything is allocated.

use bytes::Bytes;

use super::error::{DecodeError, Fault, Result};

/// The memory limits of the successive attempts to decode a request, in bytes per byte of the request. The decoder
/// detects a too low limit before it allocates more, mostly right after counting.
const MEMORY_FACTORS: [usize; 3] = [1, 3, 8];

/// The limits of a request. The defaults suit all real producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a request, in bytes. 64 MiB, as opentelemetry-proto `docs/specification.md` recommends. Never
    /// more than protobuf's own limit of 2 GiB.
    pub max_request: usize,
    /// Maximum memory per byte of a request. An empty profile of two bytes would take a hundred times as much. Real
    /// requests take 0.7, small ones up to 3.
    pub memory_factor: usize,
    /// Memory that any request may take in addition, in bytes.
    pub memory_base: usize,
    /// Maximum depth of a stack, in locations. The eBPF profiler stops at some hundred frames, runaway recursion in
    /// Ruby or Python at some ten thousand. The limit matters because consumers write out each stack once per chunk.
    pub max_stack_depth: usize,
    /// Maximum number of lines of a location, that is, functions inlined into each other.
    pub max_lines: usize,
    /// Maximum nesting of attribute values.
    pub max_value_depth: u32,
    /// Maximum number of attribute values in a request, including nested ones.
    pub max_values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_request: 64 << 20,
            memory_factor: 8,
            memory_base: 1 << 20,
            max_stack_depth: 65_536,
            max_lines: 4_096,
            max_value_depth: 16,
            max_values: 1 << 20,
        }
    }
}

/// Decodes a request with as little memory as it needs: each attempt may take more. `grant` is asked for the memory of
/// an attempt, in bytes, before `decode` makes it.
///
/// # Errors
///
/// `grant` refuses the memory, or the last attempt is `unreadable`.
pub fn decode_granted<T, R, E: From<R>>(
    request: &Bytes,
    mut limits: Limits,
    mut grant: impl FnMut(usize) -> std::result::Result<(), R>,
    decode: impl Fn(Bytes, &Limits) -> std::result::Result<T, DecodeError>,
    unreadable: impl FnOnce(DecodeError) -> E,
) -> std::result::Result<T, E> {
    let mut factors = MEMORY_FACTORS.into_iter().peekable();
    loop {
        limits.memory_factor = factors.next().unwrap_or(limits.memory_factor);
        let memory = request.len().saturating_mul(limits.memory_factor).saturating_add(limits.memory_base);
        grant(memory)?;
        match decode(request.clone(), &limits) {
            // The limit was the memory for this attempt, so the next one may succeed.
            Err(DecodeError::LimitExceeded { limit, .. }) if limit == memory as u64 && factors.peek().is_some() => {}
            decoded => return decoded.map_err(unreadable),
        }
    }
}

/// The name of [`Limits::max_value_depth`] in errors.
pub(super) const VALUE_DEPTH: &str = "depth of attribute values";

/// The remaining part of a request's [`Limits`].
#[derive(Debug)]
pub(crate) struct Budget {
    memory: usize,
    left: usize,
    values: usize,
    values_left: usize,
    max_depth: u32,
}

impl Budget {
    /// The budget of a request of this many bytes.
    pub(crate) fn new(limits: &Limits, request: usize) -> Self {
        let memory = request.saturating_mul(limits.memory_factor).saturating_add(limits.memory_base);
        let values = limits.max_values;
        Self { memory, left: memory, values, values_left: values, max_depth: limits.max_value_depth }
    }

    /// Charges `count` elements of type `T`, before they are allocated.
    pub(crate) fn charge<T>(&mut self, count: usize) -> Result<()> {
        let bytes = count.checked_mul(size_of::<T>());
        match bytes.and_then(|bytes| self.left.checked_sub(bytes)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Fault::limit("bytes of memory for the decoded request", self.memory as u64)),
        }
    }

    /// Counts an attribute value at this depth, 0 being outermost.
    pub(crate) fn value(&mut self, depth: u32) -> Result<()> {
        if depth >= self.max_depth {
            return Err(Fault::limit(VALUE_DEPTH, u64::from(self.max_depth)));
        }
        match self.values_left.checked_sub(1) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => Err(Fault::limit("attribute values", self.values as u64)),
        }
    }
}
