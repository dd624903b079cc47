use super::*;

fn own() -> ProcessFiles {
    ProcessFiles::open(std::process::id()).unwrap()
}

/// Guarantees: words are found in the first piece, and beyond it only if reading on demand is allowed; later changes
/// of the words that were read are detected.
#[test]
fn words_of_this_process() {
    let files = own();
    let mut words = vec![0_u64; 4096];
    for (number, word) in (0_u64..).zip(words.iter_mut()) {
        *word = number;
    }
    let start = words.as_ptr() as u64;
    let mut pieces = StackPieces::default();
    assert!(pieces.copy(&files, start, 4096));
    assert_eq!(pieces.copied().read_u64(start + 8 * 5), Some(5));
    assert_eq!(pieces.copied().read_u64(start + 8 * 3000), None);
    let mut log = Vec::new();
    assert_eq!(pieces.live(&files, Some(&mut log)).read_u64(start + 8 * 3000), Some(3000));
    assert_eq!(log.len(), 1);

    assert!(pieces.copy(&files, start, 4096));
    assert!(pieces.unchanged(&files, &log));
    std::hint::black_box(&mut words)[3000] = 7;
    assert!(pieces.copy(&files, start, 4096));
    assert!(!pieces.unchanged(&files, &log));
}

/// Guarantees: unmapped memory is not read, and does not crash the sampler.
#[test]
fn no_memory() {
    let files = own();
    let mut pieces = StackPieces::default();
    for address in [0, 8, 1 << 46, 1 << 63, u64::MAX - 3, u64::MAX] {
        assert!(!pieces.copy(&files, address, 4096), "{address:#x}");
        assert_eq!(pieces.copied().read_u64(address), None);
        assert_eq!(pieces.live(&files, None).read_u64(address), None);
    }
}

/// Guarantees: the size grows at once for deep stacks and shrinks slowly for shallow ones, is generous for a thread's
/// first stack, and never exceeds its limit.
#[test]
fn size_follows_need() {
    let mut size = CopySize::new(64 << 10);
    assert_eq!(size.bytes(), 8 << 10);
    assert_eq!(size.at_first(), 32 << 10);
    assert_eq!(CopySize::new(16 << 10).at_first(), 16 << 10);
    assert!(size.fell_short(20 << 10));
    assert!(size.bytes() >= 30 << 10);
    assert!(size.fell_short(50 << 10));
    assert_eq!(size.bytes(), 64 << 10);
    assert!(!size.fell_short(65 << 10));
    let before = size.bytes();
    size.sufficed(100);
    assert!(size.bytes() > before * 9 / 10);
    for _ in 0..1000 {
        size.sufficed(100);
    }
    assert!(size.bytes() < 2 << 10);
    size.sufficed(60 << 10);
    assert_eq!(size.bytes(), 64 << 10);
    assert!(!size.fell_short(u64::MAX));
}
