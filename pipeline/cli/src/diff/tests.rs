use clap::Parser;
use profbridge_model::{Builder, Profile};

use crate::views::stacks::StackFunction;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Adds a file of functions with their numbers of samples of 10 ms. It covers this many seconds; 0 means unknown.
fn add(sums: &mut Sums, seconds: u64, functions: &[(&str, usize)]) {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    let (time_unix_nano, duration_nano) = (1_790_000_000 * SECOND, seconds * SECOND);
    builder.profile(Profile { sample_type, time_unix_nano, duration_nano, ..Profile::default() });
    for (name, count) in functions {
        let frame = builder.frame(name, "/srv/shop.py", 51);
        let stack = builder.stack(&[frame]);
        let times: Vec<u64> = (0..*count as u64).map(|at| time_unix_nano + at * SECOND / *count as u64).collect();
        builder.sample(stack, None, None, &times, &vec![10_000_000; *count]);
    }
    sums.add(&builder.finish().unwrap());
}

/// The text of a comparison, and the label of what grew by more than 5 %.
fn compared(before: (u64, &[(&str, usize)]), after: (u64, &[(&str, usize)])) -> (String, Option<String>) {
    let mut first = Sums::default();
    add(&mut first, before.0, before.1);
    let mut second = first.next();
    add(&mut second, after.0, after.1);
    std::mem::swap(&mut first.reading, &mut second.reading);
    let one = side(&mut first, State::Running, false);
    std::mem::swap(&mut first.reading, &mut second.reading);
    let other = side(&mut second, State::Running, false);
    let stacks = &second.reading.stacks;
    let comparison = Comparison::new(stacks, [&one, &other], Unit::Nanoseconds, None);
    let above = comparison.above(5.0);
    let above = above.map(|change| change.function.map_or("the whole", |of| stacks.label_of(of)).to_owned());
    (comparison.text("running", Path::new("a.otlp"), Path::new("b.otlp")), above)
}

/// Guarantees: a slower function is listed with both times. If both files state their time span, times per second are
/// compared, so that a longer file is not a slower one. Functions that differ by less than the noise are not listed.
#[test]
fn slower() {
    let before: &[_] = &[("login", 5_000), ("search", 3_000)];
    let (text, above) = compared((100, before), (200, &[("login", 11_000), ("search", 6_050)]));
    let expected = "\
before: 80.00 s running in 100.0 s, 8000 samples, a.otlp
after : 170.50 s running in 200.0 s, 17050 samples, b.otlp
compared by time per second: both may have been made for different times
whole: 800.0 ms/s -> 852.5 ms/s (+6.6 %)
slower:
    +10.0 %    500.0 ms/s ->   550.0 ms/s  login (shop.py:51)
faster: nothing
noise: a change of login by less than 8.5 % would not have been seen
";
    assert_eq!(text, expected, "{text}");
    assert_eq!(above.as_deref(), Some("login"));
}

/// Guarantees: files of equal programs differ in nothing, although their samples are not equally distributed, and the
/// exit status is that of success.
#[test]
fn equal() {
    let (text, above) = compared((10, &[("login", 500), ("search", 300)]), (10, &[("login", 470), ("search", 330)]));
    assert!(text.contains("slower: nothing\nfaster: nothing\n"), "{text}");
    assert_eq!(above, None);
}

/// Guarantees: what could not have been seen is said. Samples that are too few to see a doubling are no certainty that
/// nothing changed, and a function that is nearly the whole changes as the whole does.
#[test]
fn too_few_samples() {
    let (text, _) = compared((10, &[("a", 66), ("b", 56)]), (10, &[("a", 65), ("b", 57)]));
    let said =
        "noise: 122 and 122 samples are too few to see even a doubling of a; sample for longer, or with a higher";
    assert!(text.contains("slower: nothing\n") && text.contains(said), "{text}");
    let (text, _) = compared((100, &[("a", 5_000), ("b", 50)]), (100, &[("a", 5_000), ("b", 52)]));
    assert!(text.ends_with("noise: a is nearly the whole, which shows its changes\n"), "{text}");
}

/// Guarantees: collapsed stacks, which have no files, are refused beside a file that has them, and compared with each
/// other.
#[test]
fn functions_without_files() {
    let arguments = |names: [&str; 2]| {
        let command = crate::args::Cli::try_parse_from(["profbridge", "diff", names[0], names[1]]).unwrap().command;
        let Some(crate::args::Command::Diff(arguments)) = command else { panic!("no diff") };
        arguments
    };
    let folded = |sums: &mut Sums| {
        let unit = profbridge_wire::folded::CountUnit::Nanoseconds;
        sums.add(&profbridge_wire::folded::read(b"main;login 7", unit).unwrap().profiles);
    };
    let mut first = Sums::default();
    add(&mut first, 1, &[("login", 7)]);
    let mut second = first.next();
    folded(&mut second);
    let Err(Failure(why)) = check_places([&first, &second], &arguments(["a.otlp", "b.folded"])) else { panic!() };
    assert!(why.starts_with("error: b.folded names functions without their files"), "{why}");
    assert!(why.contains("`profbridge convert a.otlp -o x.folded`"), "{why}");
    let mut third = second.next();
    folded(&mut third);
    check_places([&second, &third], &arguments(["a.folded", "b.folded"])).unwrap();
}

/// Guarantees: without spans shares are compared; a new function is called new, and one that is gone is listed.
#[test]
fn shares() {
    let (text, above) = compared((0, &[("a", 500), ("b", 500)]), (0, &[("a", 500), ("c", 500)]));
    for part in ["compared by shares of the whole: ", "      new        0.00 % ->      50.00 %  c", "gone (-100 %)"] {
        assert!(text.contains(part), "no `{part}`: {text}");
    }
    assert!(!text.contains("\nwhole: ") && above.as_deref() == Some("c"), "{text}");
}

/// How long one run of a program is, in samples of a thread.
const LENGTH: f64 = 4_000.0;

/// The functions of a program, by their share of the time.
const SHARES: [f64; 5] = [0.3, 0.25, 0.2, 0.15, 0.1];

/// A program, and how it is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ComparedProgram {
    /// A loop of functions that run for less than the time between two samples.
    Short,
    /// A loop of functions that run for some samples each.
    Loop,
    /// A service whose requests take different functions, and come now more often, now less.
    Service,
    /// A command that does one thing after the other, from its start to its end.
    Command,
    /// A loop that ends, on a machine with busy neighbours.
    Batch,
}

/// A seeded generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// A random function, chosen with these shares as probabilities.
    fn function(&mut self, shares: [f64; 5]) -> usize {
        let mut left = self.uniform() * shares.iter().sum::<f64>();
        shares
            .iter()
            .position(|share| {
                left -= share;
                left < 0.0
            })
            .unwrap_or(0)
    }
}

impl ComparedProgram {
    /// Runs the program on a machine of random speed, with a function that takes `slower` times as long, and takes a
    /// sample after each unit of running time.
    fn run(self, length: f64, slower: f64, random: &mut Random) -> ComparedFile {
        let work = SHARES.map(|share| share * if share == SHARES[2] { slower } else { 1.0 });
        let speed = 1.0 + 0.2 * random.uniform();
        // The running functions in order, each with its time and the pause before it.
        let mut stretches: Vec<(usize, f64, f64)> = Vec::new();
        let mut ran = 0.0;
        while ran < length {
            let before = stretches.len();
            match self {
                Self::Short => stretches.push((random.function(work), 1.0, 0.0)),
                Self::Loop => {
                    stretches.extend(work.iter().enumerate().map(|(function, share)| {
                        (function, share * 25.0 * speed * (0.9 + 0.2 * random.uniform()), 0.0)
                    }))
                }
                Self::Batch => {
                    let neighbours = 0.8 + 0.4 * random.uniform();
                    stretches.extend(work.iter().enumerate().map(|(function, share)| {
                        (function, share * 25.0 * neighbours * (0.8 + 0.4 * random.uniform()), 0.0)
                    }));
                }
                Self::Service => {
                    // One of the functions is used more during ten requests.
                    let wanted = SHARES.map(|share| share * (0.5 + random.uniform()));
                    for _ in 0..10 {
                        let function = random.function(wanted);
                        let took = work[function] / SHARES[function] * (0.25 + 0.5 * random.uniform());
                        stretches.push((function, took * speed, random.exponential()));
                    }
                }
                Self::Command => {
                    stretches.extend(work.iter().enumerate().map(|(at, share)| (at, share * length * speed, 0.0)));
                }
            }
            ran += match self {
                Self::Command => length,
                Self::Batch => 25.0,
                // The other programs run for a fixed time.
                _ => stretches[before..].iter().map(|(_, took, pause)| took + pause).sum(),
            };
        }
        let (mut now, mut next) = (0.0, random.uniform());
        let mut observed = Vec::new();
        for (function, took, pause) in stretches {
            now += pause;
            next += pause;
            while next < now + took {
                observed.push(Observed {
                    thread: 1,
                    time: (next * 1e6) as u64,
                    function: function as u32,
                    weight: 1 << 20,
                });
                next += 1.0;
            }
            now += took;
        }
        let measured = FileWeights::timed(observed);
        ComparedFile {
            stacks: Vec::new(),
            total: measured.all.total as u64,
            measured,
            lines: HashMap::new(),
            span_nano: Some((now * f64::from(1 << 20)) as u64),
            is_of_whole_command: matches!(self, Self::Command | Self::Batch),
            busy: (self != Self::Service).then_some(1),
        }
    }
}

/// Guarantees: between two runs of one program on machines of different speed, a function seems to have changed in at
/// most one of a hundred comparisons. A function that takes 10 % longer is found in each comparison if there are enough
/// samples. Most are needed if functions are shorter than the sampling interval and requests arrive at random.
#[test]
fn ten_percent() {
    let mut stacks = Stacks::default();
    for name in ["parse", "route", "load", "render", "sign"] {
        stacks.function(StackFunction { module: "shop".into(), ..StackFunction::placeholder(name) }).unwrap();
    }
    let mut random = Random(1);
    for (program, enough) in [
        (ComparedProgram::Short, 20.0),
        (ComparedProgram::Loop, 2.0),
        (ComparedProgram::Service, 75.0),
        (ComparedProgram::Command, 1.0),
        (ComparedProgram::Batch, 4.0),
    ] {
        let rows = |length: f64, slower: f64, random: &mut Random| {
            let [before, after] = [1.0, slower].map(|slower| program.run(length, slower, random));
            let comparison = Comparison::new(&stacks, [&before, &after], Unit::Nanoseconds, None);
            comparison.listed().map(|change| (change.function, change.delta() > 0.0)).collect::<Vec<_>>()
        };
        let alarms = (0..60).filter(|_| !rows(LENGTH, 1.0, &mut random).is_empty()).count();
        let missed = (0..5).filter(|_| !rows(LENGTH * enough, 1.1, &mut random).contains(&(Some(2), true))).count();
        assert!(alarms <= 1 && missed == 0, "{program:?}: {alarms} false alarms of 60, {missed} missed of 5");
    }
}
