//! A thread's record: the ids of its trace and span, and attributes.
//!
//! Source of the layout: OTEP 4947 ("Thread Local Context Record"): trace id (16 bytes), span id (8), valid flag (1),
//! trace flags (1), the length of the attributes (2), and the attributes: for each a key's index (1), the value's
//! length (1) and the value.

use crate::runtime::{TargetMemory, word};

/// The maximum number of bytes of attributes that are read: the OTEP wants records of at most 640 bytes.
pub const MAX_ATTRIBUTES: usize = 612;

/// The longest value of an attribute, in bytes: its length is one byte.
pub const MAX_VALUE: usize = 255;

/// The size of the fields before the attributes, in bytes.
const HEAD: usize = 28;

/// How many bytes are read at first: in most records the fields before the attributes, and all attributes.
const FIRST: usize = 128;

/// The result of reading a thread's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordReading {
    /// The thread has no record.
    None,
    /// The record is being written, or the variable has a wrong address.
    Torn,
    /// The record.
    Record(Record),
}

/// The record of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The trace id; all zeros if there is none.
    pub trace_id: [u8; 16],
    /// The span id.
    pub span_id: [u8; 8],
    /// The attributes, encoded as in the record.
    attributes: Vec<u8>,
}

/// Reads the record to which the variable at this address points, with its attributes only if `wanted`. Takes at most
/// three reads.
pub fn read(variable: u64, wanted: bool, target: &mut dyn TargetMemory) -> RecordReading {
    let Some(at) = word(target, variable) else { return RecordReading::Torn };
    if at == 0 {
        return RecordReading::None;
    }
    let mut bytes = [0; FIRST];
    // A short record may be closer than this to the end of its mapping.
    let have = if wanted && target.read(at, &mut bytes) { FIRST } else { HEAD };
    if have == HEAD && !target.read(at, &mut bytes[..HEAD]) {
        return RecordReading::Torn;
    }
    let head = RecordHead::parse(&bytes);
    if head.valid != 1 {
        return RecordReading::Torn;
    }
    let length = if wanted { usize::from(head.attributes).min(MAX_ATTRIBUTES) } else { 0 };
    let mut attributes = vec![0; length];
    match bytes[..have].get(HEAD..HEAD + length) {
        Some(there) => attributes.copy_from_slice(there),
        None if target.read(at.wrapping_add(HEAD as u64), &mut attributes) => {}
        None => return RecordReading::Torn,
    }
    RecordReading::Record(Record { trace_id: head.trace_id, span_id: head.span_id, attributes })
}

struct RecordHead {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    valid: u8,
    attributes: u16,
}

impl RecordHead {
    fn parse(bytes: &[u8; FIRST]) -> Self {
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&bytes[..16]);
        span_id.copy_from_slice(&bytes[16..24]);
        Self { trace_id, span_id, valid: bytes[24], attributes: u16::from_le_bytes([bytes[26], bytes[27]]) }
    }
}

impl Record {
    /// The attributes: indices of keys, and values. One that extends beyond the record's end ends the list.
    pub fn attributes(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = self.attributes.as_slice();
        std::iter::from_fn(move || {
            let (&[key, length], behind) = rest.split_first_chunk::<2>()?;
            let (value, behind) = behind.split_at_checked(length.into())?;
            rest = behind;
            Some((key, value))
        })
    }
}
