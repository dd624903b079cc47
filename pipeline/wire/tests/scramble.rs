//! Encodes a protobuf message in another valid way: fields in another order, lists unpacked or in pieces, single
//! messages in several parts, unknown fields, and integers in more bytes than needed.

use profbridge_model::varint;

/// The known fields of a message, by number.
pub(crate) struct FieldSchema(&'static [(u32, FieldForm)]);

enum FieldForm {
    /// A packed list of integers.
    Packed,
    /// A packed list of eight-byte numbers.
    PackedFixed,
    /// A repeated message.
    Each(&'static FieldSchema),
    /// A single message, which may be encoded in several parts.
    One(&'static FieldSchema),
}

use FieldForm::{Each, One, Packed, PackedFixed};

/// A request of OTLP profiles.
pub(crate) static OTLP: FieldSchema = FieldSchema(&[(1, Each(&RESOURCE_PROFILES)), (2, One(&DICTIONARY))]);
static RESOURCE_PROFILES: FieldSchema = FieldSchema(&[(1, One(&RESOURCE)), (2, Each(&SCOPE_PROFILES))]);
static RESOURCE: FieldSchema = FieldSchema(&[(1, Each(&KEY_VALUE)), (3, Each(&PLAIN))]);
static SCOPE_PROFILES: FieldSchema = FieldSchema(&[(1, One(&SCOPE)), (2, Each(&PROFILE))]);
static SCOPE: FieldSchema = FieldSchema(&[(3, Each(&KEY_VALUE))]);
static PROFILE: FieldSchema = FieldSchema(&[(1, One(&PLAIN)), (2, Each(&SAMPLE)), (5, One(&PLAIN)), (11, Packed)]);
static SAMPLE: FieldSchema = FieldSchema(&[(2, Packed), (4, Packed), (5, PackedFixed)]);
static DICTIONARY: FieldSchema = FieldSchema(&[
    (1, Each(&MAPPING)),
    (2, Each(&LOCATION)),
    (3, Each(&PLAIN)),
    (4, Each(&PLAIN)),
    (6, Each(&KEY_VALUE)),
    (7, Each(&STACK)),
]);
static MAPPING: FieldSchema = FieldSchema(&[(5, Packed)]);
static LOCATION: FieldSchema = FieldSchema(&[(3, Each(&PLAIN)), (4, Packed)]);
static STACK: FieldSchema = FieldSchema(&[(1, Packed)]);
/// `KeyValue` and `KeyValueAndUnit`: both hold their value in field 2.
static KEY_VALUE: FieldSchema = FieldSchema(&[(2, One(&ANY_VALUE))]);
static ANY_VALUE: FieldSchema = FieldSchema(&[(5, One(&ARRAY)), (6, One(&LIST))]);
static ARRAY: FieldSchema = FieldSchema(&[(1, Each(&ANY_VALUE))]);
static LIST: FieldSchema = FieldSchema(&[(1, Each(&KEY_VALUE))]);
static PLAIN: FieldSchema = FieldSchema(&[]);

/// A pprof profile.
pub(crate) static PPROF: FieldSchema = FieldSchema(&[
    (1, Each(&PLAIN)),
    (2, Each(&PPROF_SAMPLE)),
    (3, Each(&PLAIN)),
    (4, Each(&PPROF_LOCATION)),
    (5, Each(&PLAIN)),
    (11, Each(&PLAIN)),
    (13, Packed),
]);
static PPROF_SAMPLE: FieldSchema = FieldSchema(&[(1, Packed), (2, Packed), (3, Each(&PLAIN))]);
static PPROF_LOCATION: FieldSchema = FieldSchema(&[(4, Each(&PLAIN))]);

/// A small generator of pseudo-random numbers (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % bound.max(1)
    }
}

/// A length-delimited field.
pub(crate) fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 12);
    varint::put(&mut bytes, u64::from(number << 3 | 2));
    varint::put(&mut bytes, content.len() as u64);
    bytes.extend_from_slice(content);
    bytes
}

/// Rewrites a canonically encoded message.
pub(crate) fn scramble(message: &[u8], schema: &FieldSchema, random: &mut Random) -> Vec<u8> {
    let mut fields: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let key = varint::take(&mut rest).unwrap();
        let number = (key >> 3) as u32;
        match key & 7 {
            0 => {
                let value = varint::take(&mut rest).unwrap();
                let mut field = head(key, random);
                put(&mut field, value, random);
                fields.push((number, field));
            }
            1 => {
                let (value, behind) = rest.split_at(8);
                rest = behind;
                let mut field = head(key, random);
                field.extend_from_slice(value);
                fields.push((number, field));
            }
            2 => {
                let len = varint::take(&mut rest).unwrap() as usize;
                let (value, behind) = rest.split_at(len);
                rest = behind;
                let kind = schema.0.iter().find(|(of, _)| *of == number).map(|(_, kind)| kind);
                for field in rewrite(number, value, kind, random) {
                    fields.push((number, field));
                }
            }
            other => panic!("prost does not write wire type {other}"),
        }
    }
    for _ in 0..random.below(3) {
        fields.push((0, unknown(random)));
    }
    mix(fields, random)
}

/// Joins fields in a random order, which keeps the order of fields with the same number.
fn mix(fields: Vec<(u32, Vec<u8>)>, random: &mut Random) -> Vec<u8> {
    let mut queues: Vec<(u32, std::collections::VecDeque<Vec<u8>>)> = Vec::new();
    for (number, field) in fields {
        match queues.iter_mut().find(|(of, _)| *of == number) {
            Some((_, queue)) => queue.push_back(field),
            None => queues.push((number, [field].into())),
        }
    }
    let mut out = Vec::new();
    while !queues.is_empty() {
        let chosen = random.below(queues.len());
        match queues[chosen].1.pop_front() {
            Some(field) => out.extend(field),
            None => drop(queues.swap_remove(chosen)),
        }
    }
    out
}

fn rewrite(number: u32, value: &[u8], kind: Option<&FieldForm>, random: &mut Random) -> Vec<Vec<u8>> {
    match kind {
        Some(Each(schema)) => {
            let value = scramble(value, schema, random);
            vec![with_len(number, &value, random)]
        }
        Some(One(schema)) => {
            let value = scramble(value, schema, random);
            let parts = part(&value, random);
            parts.iter().map(|part| with_len(number, part, random)).collect()
        }
        Some(Packed) => {
            let mut fields = Vec::new();
            let mut rest = value;
            while !rest.is_empty() {
                let mut piece = Vec::new();
                for _ in 0..=random.below(3) {
                    match varint::take(&mut rest) {
                        Some(number) => put(&mut piece, number, random),
                        None => break,
                    }
                }
                fields.push(if varint::count(&piece) == 1 && random.below(2) == 0 {
                    let mut field = head(u64::from(number) << 3, random);
                    field.extend(piece);
                    field
                } else {
                    with_len(number, &piece, random)
                });
            }
            fields
        }
        Some(PackedFixed) => {
            let mut fields = Vec::new();
            let mut rest = value;
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at((8 * (1 + random.below(3))).min(rest.len()));
                rest = behind;
                fields.push(if piece.len() == 8 && random.below(2) == 0 {
                    let mut field = head(u64::from(number) << 3 | 1, random);
                    field.extend(piece);
                    field
                } else {
                    with_len(number, piece, random)
                });
            }
            fields
        }
        None => vec![with_len(number, value, random)],
    }
}

/// Splits a message into parts at the boundaries of its fields.
fn part(message: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut rest = message;
    while !rest.is_empty() {
        let before = rest;
        let key = varint::take(&mut rest).unwrap();
        skip(key, &mut rest);
        if random.below(4) == 0 {
            parts.push(Vec::new());
        }
        parts.last_mut().unwrap().extend_from_slice(&before[..before.len() - rest.len()]);
    }
    parts
}

fn skip(key: u64, rest: &mut &[u8]) {
    let len = match key & 7 {
        0 => {
            varint::take(rest).unwrap();
            0
        }
        1 => 8,
        2 => varint::take(rest).unwrap() as usize,
        5 => 4,
        3 => loop {
            let inner = varint::take(rest).unwrap();
            if inner & 7 == 4 {
                break 0;
            }
            skip(inner, rest);
        },
        other => panic!("wire type {other} was not written"),
    };
    *rest = &rest[len..];
}

fn head(key: u64, random: &mut Random) -> Vec<u8> {
    let mut field = Vec::new();
    put(&mut field, key, random);
    field
}

fn with_len(number: u32, value: &[u8], random: &mut Random) -> Vec<u8> {
    let mut field = head(u64::from(number) << 3 | 2, random);
    put(&mut field, value.len() as u64, random);
    field.extend_from_slice(value);
    field
}

/// Writes an integer, sometimes in one byte more than needed.
fn put(out: &mut Vec<u8>, value: u64, random: &mut Random) {
    varint::put(out, value);
    if varint::len(value) < varint::MAX_LEN && random.below(8) == 0 {
        *out.last_mut().unwrap() |= 0x80;
        out.push(0);
    }
}

/// A field that no version of the protocol defines, of any wire type.
fn unknown(random: &mut Random) -> Vec<u8> {
    let number = 100 + random.below(1000) as u64;
    let mut field = Vec::new();
    match random.below(5) {
        0 => {
            varint::put(&mut field, number << 3);
            varint::put(&mut field, 1 << random.below(64));
        }
        1 => {
            varint::put(&mut field, number << 3 | 1);
            field.extend_from_slice(&[0xff; 8]);
        }
        2 => {
            varint::put(&mut field, number << 3 | 2);
            field.extend_from_slice(&[3, 0xff, 0xff, 0xff]);
        }
        3 => {
            varint::put(&mut field, number << 3 | 5);
            field.extend_from_slice(&[0xff; 4]);
        }
        _ => {
            varint::put(&mut field, number << 3 | 3);
            field.extend(unknown(random));
            varint::put(&mut field, number << 3 | 4);
        }
    }
    field
}
