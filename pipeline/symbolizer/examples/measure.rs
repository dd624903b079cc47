//! Measures the cost of names: `cargo run --release -p profbridge-symbolizer --example measure -- FILE START END
//! [ADDRESSES]`.
//!
//! Asks for addresses spread evenly between START and END (hexadecimal, of `.text` as printed by `readelf -S`): twice
//! with different addresses, and then again with the same ones. Prints the time until the symbol table's answers, the
//! time until the last answer, the number of answers with names, and the memory.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use profbridge_symbolizer::{Object, ObjectId, ObjectKey, ObjectSource, Settings, SymbolAnswer, Symbolizer};

const LIMIT: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: measure FILE START END [ADDRESSES]")?);
    let number = |text: Option<String>| -> Result<u64, Box<dyn Error>> {
        let text = text.ok_or("usage: measure FILE START END [ADDRESSES]")?;
        Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
    };
    let (start, end) = (number(arguments.next())?, number(arguments.next())?);
    let count: u64 = arguments.next().map_or(Ok(20_000), |text| text.parse())?;

    let symbolizer =
        Symbolizer::start(Settings { cache_bytes: 2 << 30, max_dwarf_bytes: 4 << 30, ..Settings::default() })?;
    let object = symbolizer.object(Object {
        key: ObjectKey::Other("measured".into()),
        source: ObjectSource::Path(path.clone()),
        root: None,
        path: path.display().to_string(),
    });
    println!("before: {}", memory());
    let step = ((end - start) / count).max(2);
    let first: Vec<u64> = (start..end).step_by(step as usize).collect();
    let second: Vec<u64> = first.iter().map(|address| address + step / 2).collect();
    for (what, addresses) in [("first", &first), ("others", &second), ("the same", &second)] {
        measure(&symbolizer, object, what, addresses)?;
    }
    println!("{:?}", symbolizer.counters());
    Ok(())
}

fn measure(symbolizer: &Symbolizer, object: ObjectId, what: &str, addresses: &[u64]) -> Result<(), Box<dyn Error>> {
    let clock = Instant::now();
    if symbolizer.ask(object, addresses) < addresses.len() {
        return Err("too many addresses".into());
    }
    // Gaps between functions have no symbol, so they stay pending until DWARF has been read.
    let answered = |&&address: &&u64| !matches!(symbolizer.answer(object, address), SymbolAnswer::Pending);
    // Checks only a few of them, to keep the overhead small.
    let few = || addresses.iter().step_by(100);
    let enough = few().count() / 10 * 9;
    let mut symbols = None;
    let poll = Duration::from_millis(1);
    while !symbolizer.wait(poll) {
        if symbols.is_none() && few().filter(answered).count() > enough {
            symbols = Some(clock.elapsed());
        }
        if clock.elapsed() > LIMIT {
            return Err("it takes too long".into());
        }
    }
    let all = clock.elapsed();
    let answers: Vec<_> = addresses.iter().map(|&address| symbolizer.answer(object, address)).collect();
    let frames = |answer: &SymbolAnswer| answer.symbols().map_or(0, |symbols| symbols.frames.len());
    let lines = |answer: &SymbolAnswer| answer.symbols().is_some_and(|symbols| symbols.frames[0].line > 0);
    let named = answers.iter().filter(|answer| frames(answer) > 0).count();
    let with_lines = answers.iter().filter(|answer| lines(answer)).count();
    println!(
        "{what}: {} addresses, symbols after {:?}, all after {all:?}, {named} named, {with_lines} with lines, {} frames; {}",
        addresses.len(),
        symbols.unwrap_or(all),
        answers.iter().map(frames).sum::<usize>(),
        memory()
    );
    Ok(())
}

/// This process's memory, as reported by the kernel.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let fields = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    fields.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}
