//! Records that the kernel would never write: they are rejected, and nothing is read beyond their end.

use proptest::prelude::*;

use super::tests::{EncodedSample, mapping, record, words};
use super::*;

/// Guarantees: a record that is cut at any point and has the matching length is rejected, or the result contains no
/// data of the missing part; a record whose length differs from its bytes is rejected.
#[test]
fn cut() {
    let sample = EncodedSample::default().bytes();
    // A mapping may lack its path.
    let mapping = mapping(b"");
    for (whole, least) in [(&sample, sample.len()), (&mapping, mapping.len() - 8)] {
        cut_to(whole, least);
    }
    for kind in [2, 4, 7, 10, 13, 14, 15] {
        assert_eq!(parse(&record(kind, 0, &[])), Err(MalformedRecord::Short), "{kind}");
    }
}

fn cut_to(whole: &[u8], least: usize) {
    for length in 0..least {
        let mut bytes = whole[..length].to_vec();
        assert!(parse(&bytes).is_err(), "{length}");
        if length >= HEADER {
            bytes[6..8].copy_from_slice(&u16::try_from(length).unwrap().to_ne_bytes());
            assert!(parse(&bytes).is_err(), "{length}");
        }
    }
}

/// Guarantees: a path ends with its record, whether or not it is terminated, and may contain any bytes.
#[test]
fn paths() {
    for path in [&[b'x'; 4096][..], b"\n\xff \x01"] {
        let bytes = mapping(path);
        let Ok(Record::Mapped(mapped)) = parse(&bytes) else { panic!("no mapping") };
        assert_eq!(mapped.path, path);
    }
    let mut endless = mapping(b"1234567");
    let end = endless.len() - 24;
    endless[end - 8..end].fill(b'x');
    let Ok(Record::Mapped(mapped)) = parse(&endless) else { panic!("no mapping") };
    assert_eq!((mapped.path, mapped.time_nano), (&b"xxxxxxxx"[..], 9));
}

/// Guarantees: no length in a header makes reading the ring endless: accepted lengths are at least the header's size
/// and multiples of 8.
#[test]
fn lengths() {
    for length in 0..=u16::MAX {
        let [low, high] = length.to_ne_bytes();
        let header = RecordHeader::parse([9, 0, 0, 0, 0, 0, low, high]);
        assert_eq!(header.is_ok(), length >= 8 && length % 8 == 0, "{length}");
    }
}

/// Guarantees: a stack is never longer than requested, and its valid part never longer than the stack.
#[test]
fn stacks() {
    let longer = EncodedSample { stack: vec![0; STACK_BYTES as usize + 8], valid: 8, ..EncodedSample::default() };
    assert_eq!(parse(&longer.bytes()), Err(MalformedRecord::Stack));
    for valid in [9, 16, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(
            parse(&EncodedSample { valid, ..EncodedSample::default() }.bytes()),
            Err(MalformedRecord::Stack),
            "{valid}"
        );
    }
    // Sizes that would make the length overflow, and invalid ones.
    let mut bytes = EncodedSample::default().bytes();
    let place = bytes.len() - 8 - 8 - 8;
    for size in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 16, 9] {
        bytes[place..place + 8].copy_from_slice(&size.to_ne_bytes());
        assert!(parse(&bytes).is_err(), "{size}");
    }
}

/// Guarantees: a call chain is never longer than the rest of its record, however many addresses it claims to have.
#[test]
fn call_chains() {
    let sample = EncodedSample { chain: vec![1, 2, 3], ..EncodedSample::default() }.bytes();
    let place = HEADER + 7 * 8;
    assert_eq!(sample[place..place + 8], 3_u64.to_ne_bytes());
    for claimed in [100, 8 << 10, 1 << 61, (1 << 61) + 3, u64::MAX / 8, u64::MAX] {
        let mut bytes = sample.clone();
        bytes[place..place + 8].copy_from_slice(&claimed.to_ne_bytes());
        assert_eq!(parse(&bytes), Err(MalformedRecord::Short), "{claimed}");
    }
}

/// Guarantees: registers of a 32-bit program are recognized, and those of an unknown ABI are rejected.
#[test]
fn registers_of_others() {
    let parsed = |abi| match parse(&EncodedSample { abi, ..EncodedSample::default() }.bytes()) {
        Ok(Record::Sample(sample)) => Ok(sample.user),
        Ok(_) => panic!("no sample"),
        Err(error) => Err(error),
    };
    assert_eq!(parsed(1), Ok(User::OtherArchitecture));
    assert_eq!(parsed(3), Err(MalformedRecord::Registers));
    assert_eq!(parsed(u64::MAX), Err(MalformedRecord::Registers));
}

proptest! {
    /// Guarantees: no bytes make the parser panic, and a sample's stack lies within its record.
    #[test]
    fn anything(kind in 0u32..20, misc: u16, body in prop::collection::vec(any::<u64>(), 0..64)) {
        let bytes = record(kind, misc, &words(&body));
        if let Ok(Record::Sample(sample)) = parse(&bytes) {
            prop_assert!(sample.stack.len() <= bytes.len());
        }
        if let Ok(Record::Mapped(mapped)) = parse(&bytes) {
            prop_assert!(mapped.path.len() <= bytes.len());
        }
        if let Ok(Record::Sample(sample)) = parse(&words(&body)) {
            prop_assert!(sample.stack.len() <= body.len() * 8);
        }
    }
}
