//! How many stacks reach the root of their thread, and how many functions have names.

use std::{os::unix::fs::FileExt, path::Path, time::Duration};

use profbridge_sampler::message::{Location, Mapping, Settings, Trust};

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options,
    names::Names,
    session::Session,
    targets::{Programs, Target},
};

/// How many bytes of the program's entry belong to `_start`, where the first thread's stack ends.
const START_LENGTH: u64 = 64;

/// Which stacks of a target count.
type Counts = fn(&Session, &[Location]) -> bool;

/// A target.
struct Kind {
    name: &'static str,
    target: Target,
    counts: Counts,
    goal: f64,
    /// Whether its own code was built with symbols.
    symbols: bool,
}

/// Starts a target.
type Start = fn(&Programs) -> Result<Kind, Error>;

fn all(_: &Session, _: &[Location]) -> bool {
    true
}

/// Below a function of OpenSSL.
fn in_openssl(session: &Session, locations: &[Location]) -> bool {
    let leaf = locations.first().and_then(|location| location.mapping());
    leaf.and_then(|index| session.mappings.get(index as usize))
        .is_some_and(|mapping| mapping.path.contains("libcrypto"))
}

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let kinds: [Start; 7] = [
        |programs| kind("C without frame pointers", programs.start("busy", &["1", "2"])?, all, 99.5, true),
        |programs| kind("Rust", programs.start("threads", &[])?, all, 99.5, true),
        |programs| kind("Python", programs.interpret("python3", "hashing.py", &["compute"])?, all, 99.5, false),
        |programs| kind("Node", programs.interpret("node", "compute.js", &[])?, all, 99.5, false),
        |programs| {
            kind("Python in OpenSSL", programs.interpret("python3", "hashing.py", &["hash"])?, in_openssl, 99.0, false)
        },
        |programs| kind("signal handlers", programs.start("handlers", &["plain"])?, all, 99.0, true),
        |programs| kind("handlers on alternate stacks", programs.start("handlers", &["alternate"])?, all, 99.0, true),
    ];
    for start in kinds {
        let kind = start(programs)?;
        let settings = Settings { rate_hertz: 400.0, max_cpu: 0.5, max_stopped: 0.5, ..Settings::default() };
        let mut session = Session::start(kind.target.pid(), settings, true)?;
        session.listen(Duration::from_secs_f64(options.seconds))?;
        session.finish()?;
        stacks(&kind, &session, report)?;
        if kind.symbols {
            names(&kind, &session, report)?;
        }
    }
    Ok(())
}

fn kind(name: &'static str, target: Target, counts: Counts, goal: f64, symbols: bool) -> Result<Kind, Error> {
    Ok(Kind { name, target, counts, goal, symbols })
}

/// The share of stacks that end where threads start. What the sampler itself calls complete is not believed: the last
/// frame must lie in the program's `_start`, or in the C library or its loader, which start threads.
fn stacks(kind: &Kind, session: &Session, report: &mut Report) -> Result<(), Error> {
    let entry = session.mappings.iter().find(|mapping| mapping.main).map(entry).transpose()?.unwrap_or(0);
    let (mut observed, mut rooted, mut complete) = (0, 0, 0);
    let mut bad: Vec<(u64, String)> = Vec::new();
    for ((trust, locations), count) in &session.stacks {
        if !(kind.counts)(session, locations) {
            continue;
        }
        let root =
            locations.last().and_then(|last| Some((last.address(), session.mappings.get(last.mapping()? as usize)?)));
        let reaches = root.is_some_and(|(address, mapping)| {
            let file = Path::new(&mapping.path).file_name().unwrap_or_default().to_string_lossy();
            let library = file.starts_with("libc.") || file.starts_with("libc-") || file.starts_with("ld-");
            library || (mapping.main && (entry..entry + START_LENGTH).contains(&address))
        });
        observed += count;
        complete += if matches!(trust, Trust::Complete | Trust::MissingCallers) { *count } else { 0 };
        if reaches && matches!(trust, Trust::Complete | Trust::MissingCallers) {
            rooted += count;
        } else {
            bad.push((*count, format!("{trust:?} {locations:x?}")));
        }
    }
    bad.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    bad.truncate(10);
    report.detail(&format!("stacks that do not reach the root, {}", kind.name), bad);
    let percent = |part: u64| 100.0 * part as f64 / observed.max(1) as f64;
    report.figure(format!("stacks to the root, {}", kind.name), percent(rooted), "%", Some(Goal::AtLeast(kind.goal)));
    report.figure(format!("  called complete, of {observed}, {}", kind.name), percent(complete), "%", None);
    Ok(())
}

/// The address at which a program starts (`e_entry` of a 64-bit ELF file).
fn entry(main: &Mapping) -> Result<u64, Error> {
    let mut bytes = [0; 8];
    main.file.as_ref().ok_or("the program has no file")?.read_exact_at(&mut bytes, 24)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The share of frames of the target's own code whose function is found.
fn names(kind: &Kind, session: &Session, report: &mut Report) -> Result<(), Error> {
    let names = Names::of(session)?;
    let main: Vec<u32> = session.mappings.iter().filter(|mapping| mapping.main).map(|mapping| mapping.index).collect();
    let (mut all, mut found) = (0, 0);
    for ((_, locations), count) in &session.stacks {
        for location in locations.iter().filter(|at| at.mapping().is_some_and(|index| main.contains(&index))) {
            all += count;
            found += if names.symbols(location).is_some() { *count } else { 0 };
        }
    }
    let percent = 100.0 * found as f64 / all.max(1) as f64;
    report.figure(format!("functions found, {}", kind.name), percent, "%", Some(Goal::AtLeast(99.0)));
    Ok(())
}
