use std::collections::HashMap;

use profbridge_model::{Builder, Profile};

use super::{GraphStyle, draw};
use crate::views::sums::Sums;

/// The position and width of each function's cells in a picture, relative to the total.
fn cells(svg: &str) -> HashMap<&str, (f64, f64)> {
    let cells = svg.split("<g><title>").skip(1).map(|cell| {
        let attribute = |name: &str| -> f64 {
            let (_, rest) = cell.split_once(&format!(" {name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let (left, width) = ((attribute("x") - 10.0) / 1180.0, attribute("width") / 1180.0);
        (cell.split_once('\n').unwrap().0, (left, left + width))
    });
    cells.collect()
}

/// Guarantees: with lines told apart, each line of own code is a function, and what it calls stands below it.
#[test]
fn by_line() {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    for (line, weight) in [(7, 30), (8, 10)] {
        let frames = ["inner", "outer"].map(|name| builder.frame(name, "/srv/shop.py", line));
        let stack = builder.stack(&frames);
        builder.sample(stack, None, None, &[], &[weight]);
    }
    let mut sums = Sums::default();
    sums.reading.stacks.by_line = true;
    sums.add(&builder.finish().unwrap());
    let mut svg = Vec::new();
    draw(&mut sums, "title", GraphStyle::default(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let cells = cells(&svg);
    for name in ["outer", "inner"] {
        for (line, place) in [(7, (0.0, 0.75)), (8, (0.75, 1.0))] {
            assert_eq!(cells[&*format!("{name}:{line}")], place, "{svg}");
        }
    }
    assert!(svg.contains("; hottest: inner:7 (shop.py:7) 75.00 %"), "{svg}");
}

/// Guarantees: with the script's tolerance for zooming, callees are inside their caller, whatever the rounding, and
/// neighbours are not, however narrow they are.
#[test]
fn tolerance() {
    let (_, tolerance) = include_str!("script.js").split_once("tiny = ").unwrap();
    let tolerance: f64 = tolerance.split_once(';').unwrap().0.parse().unwrap();
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    let names = |caller: i64, called: i64| (format!("caller{caller}"), format!("called{caller}.{called}"));
    for caller in 0..300 {
        for called in 0..3 {
            // The narrowest cells are hardly wider than those left out.
            let weight = 1_000 + (caller * 7_919 + called * 104_729) % (if caller < 100 { 1_000 } else { 30_000 });
            let (outer, inner) = names(caller, called);
            let frames = [inner, outer].map(|name| builder.frame(&name, "", 1));
            let stack = builder.stack(&frames);
            builder.sample(stack, None, None, &[], &[weight]);
        }
    }
    let mut sums = Sums::default();
    sums.add(&builder.finish().unwrap());
    let mut svg = Vec::new();
    draw(&mut sums, "title", GraphStyle::default(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let cells = cells(&svg);
    let within =
        |(left, right): (f64, f64), zoomed: (f64, f64)| left >= zoomed.0 - tolerance && right <= zoomed.1 + tolerance;
    let (mut apart, mut met) = (0, 0);
    for (name, place) in cells.iter().filter(|(name, _)| name.starts_with("called")) {
        let own = name.trim_start_matches("called").split_once('.').unwrap().0;
        for (caller, of) in cells.iter().filter(|(name, _)| name.starts_with("caller")) {
            assert_eq!(within(*place, *of), *caller == format!("caller{own}"), "{name} {place:?}, {caller} {of:?}");
            met += 1;
            apart += usize::from(*caller == format!("caller{own}") && place.1 > of.1 + 1e-7);
        }
    }
    assert!(met > 200_000 && apart > 10, "{met} {apart}");
}
