//! Valid requests that are as difficult as possible: every observation has a unique stack, locations inline up to sixty
//! functions, and names need every JSON escape. The decoder's tests cover invalid requests.

use fastrand::Rng;

use crate::{ExportProfilesServiceRequest, Frame, RequestBuilder};

const OBSERVATIONS: u64 = 4_000;

/// The number of threads, which observations use in rotation.
const THREADS: u64 = 8;

/// Text that is difficult for JSON writers: escapes, control characters, the separators that JavaScript rejects,
/// characters of each UTF-8 length, a right-to-left override, a combining mark, a character outside the BMP, and text
/// with a meaning in HTML or a shell.
const PIECES: [&str; 24] = [
    "\"",
    "\\",
    "/",
    "\u{0}",
    "\u{1}",
    "\u{8}",
    "\t",
    "\n",
    "\u{b}",
    "\u{c}",
    "\r",
    "\u{1f}",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "é",
    "e\u{301}",
    "函数",
    "🦀",
    "\u{202e}",
    "\u{feff}",
    "</script>",
    "${HOME}",
];

/// A request of 4,000 observations from `start` on, one `period` apart per thread.
pub(super) fn request(rng: &mut Rng, start: u64, period: u64) -> ExportProfilesServiceRequest {
    let frames: Vec<Frame> = (0..600).map(|number| frame(rng, number)).collect();
    let mut builder = RequestBuilder::new()
        .process("\"quoted\\service\"\n🦀", 1)
        .on_cpu(101)
        .range(start, OBSERVATIONS / THREADS * period);
    for number in 0..OBSERVATIONS {
        let mut stack: Vec<&Frame> = (0..rng.usize(20..100)).map(|_| &frames[rng.usize(..frames.len())]).collect();
        // The first two frames are chosen by counting, so that all stacks differ.
        stack.insert(0, &frames[number as usize % frames.len()]);
        stack.insert(0, &frames[number as usize / frames.len()]);
        let (tick, thread) = (number / THREADS, number % THREADS);
        builder = builder
            .sample(&stack, thread as i64 + 1, &[start + tick * period + thread * 1_000])
            .thread_name(PIECES[thread as usize]);
    }
    builder.build()
}

fn frame(rng: &mut Rng, number: usize) -> Frame {
    let mut frame = Frame::exact(&name(rng, number), &name(rng, number), number as i64);
    if number.is_multiple_of(10) {
        for depth in 0..rng.usize(1..60) {
            frame = frame.called_by(&name(rng, number + depth), "", i64::from(u32::MAX));
        }
    }
    match number % 3 {
        0 => frame.kind("native").mapping("lib\"quoted\".so.1", 0x2000 + number as u64),
        1 => frame.kind("cpython").address(number as u64),
        _ => frame,
    }
}

/// A name of several pieces; one in fifty is 4 KB long.
fn name(rng: &mut Rng, number: usize) -> String {
    let pieces = if number.is_multiple_of(50) { 1_500 } else { rng.usize(2..12) };
    let mut name = format!("f{number}");
    for _ in 0..pieces {
        name.push_str(PIECES[rng.usize(..PIECES.len())]);
    }
    name
}
