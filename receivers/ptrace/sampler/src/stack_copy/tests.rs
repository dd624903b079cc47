use super::*;

fn own() -> ProcessFiles {
    ProcessFiles::open(std::process::id()).unwrap()
}

/// Guarantees: words are found in the first piece, beyond it only where reading on demand is allowed, and what was read
/// is told from what changed since.
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

/// Guarantees: memory that is not there is not read, and does not end the sampler.
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

/// Guarantees: the size follows deep stacks at once and shallow ones slowly, is generous with a thread's first stack,
/// and never exceeds its limit.
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

/// Memory of this process that holds its own addresses, and its first address: a stack of so many bytes.
fn stack(bytes: usize) -> (Vec<u64>, u64) {
    let mut words = vec![0_u64; bytes / 8];
    let start = words.as_ptr() as u64;
    for (number, word) in (0_u64..).zip(words.iter_mut()) {
        *word = start + number * 8;
    }
    (words, start)
}

/// A copy of the first bytes, as the kernel makes one.
fn copy_of(words: &[u64], bytes: usize) -> StackPieces {
    let mut pieces = StackPieces::default();
    let copy: Vec<u8> = words[..bytes / 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
    pieces.take(words.as_ptr() as u64, &copy);
    pieces
}

/// Guarantees: once a signal frame led to another stack, nothing of it is read, and what was read before is there.
#[test]
fn other_stacks() {
    const COPY: usize = 16 << 10;
    let files = own();
    let (words, start) = stack(4 * COPY);
    let (other, elsewhere) = stack(4096);
    let mut pieces = copy_of(&words, COPY);
    let above = start + COPY as u64;
    let mut memory = pieces.further(&files);
    assert_eq!(memory.read_u64(above), Some(above));
    memory.enter_other_stack();
    assert_eq!((memory.read_u64(start), memory.read_u64(above)), (Some(start), Some(above)));
    for outside in [above + (8 << 10), elsewhere] {
        assert_eq!(memory.read_u64(outside), None);
    }
    assert!(pieces.keep_further(&files));
    assert_eq!(pieces.live(&files, None).read_u64(elsewhere), Some(elsewhere));
    drop(other);
}

/// Guarantees: what lies above a copy is believed where the end of the copy has not changed, and that is at least 2 KiB
/// from the stack pointer; else nothing of it is left.
#[test]
fn end_of_the_copy() {
    let files = own();
    for (bytes, changed, believed) in [
        (SETTLED + TAIL, None, true),
        (SETTLED + TAIL - 8, None, false),
        (TAIL, None, false),
        (8, None, false),
        (16 << 10, None, true),
        (16 << 10, Some(0), true),
        (16 << 10, Some((16 << 10) - TAIL - 8), true),
        (16 << 10, Some((16 << 10) - TAIL), false),
        (16 << 10, Some((16 << 10) - 8), false),
    ] {
        let (mut words, start) = stack(64 << 10);
        let mut pieces = copy_of(&words, bytes);
        let above = start + bytes as u64;
        assert_eq!(pieces.further(&files).read_u64(above), Some(above));
        if let Some(changed) = changed {
            std::hint::black_box(&mut words)[changed / 8] = 7;
        }
        assert_eq!(pieces.keep_further(&files), believed, "{bytes} {changed:?}");
        assert_eq!(pieces.copied().read_u64(above), believed.then_some(above), "{bytes} {changed:?}");
    }
}
