use profbridge_model::{Builder, Profile};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A file of functions with their numbers of samples of 10 ms, made for so many seconds; 0 says nothing about that.
fn add(sums: &mut Sums, seconds: u64, functions: &[(&str, usize)]) {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    let (time_unix_nano, duration_nano) = (1_790_000_000 * SECOND, seconds * SECOND);
    builder.profile(Profile { sample_type, time_unix_nano, duration_nano, ..Profile::default() });
    for (name, count) in functions {
        let frame = builder.frame(name, "/srv/shop.py", 51);
        let stack = builder.stack(&[frame]);
        let times: Vec<u64> = (0..*count as u64).map(|at| time_unix_nano + at).collect();
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
    let comparison = Comparison::new(stacks, &one, &other, Unit::Nanoseconds, false);
    let above = comparison.above(5.0);
    let above = above.map(|change| change.function.map_or("the whole", |of| stacks.label_of(of)).to_owned());
    (comparison.text("running", Path::new("a.otlp"), Path::new("b.otlp")), above)
}

/// Guarantees: a function that takes longer is listed with both times, compared per second where both files say their
/// span, so that a longer file is no slower one; the others, which differ by less than the noise, are not.
#[test]
fn slower() {
    let before: &[_] = &[("login", 5_000), ("search", 3_000)];
    let (text, above) = compared((100, before), (200, &[("login", 11_000), ("search", 6_050)]));
    let expected = "\
before: 80.00 s running in 100.0 s, 8000 samples, a.otlp
after : 170.50 s running in 200.0 s, 17050 samples, b.otlp
compared by processor time per second
whole: 800.0 ms/s -> 852.5 ms/s (+6.6 %)
slower:
    +10.0 %    500.0 ms/s ->   550.0 ms/s  login (shop.py:51)
faster: nothing
noise: a change of login by less than 8.0 % would not have been seen
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

/// Guarantees: without spans shares are compared; a new function is called new, and one that is gone is listed.
#[test]
fn shares() {
    let (text, above) = compared((0, &[("a", 500), ("b", 500)]), (0, &[("a", 500), ("c", 500)]));
    for part in ["compared by shares of the whole\n", "      new        0.00 % ->      50.00 %  c", "gone (-100 %)"] {
        assert!(text.contains(part), "no `{part}`: {text}");
    }
    assert!(!text.contains("whole: ") && above.as_deref() == Some("c"), "{text}");
}
