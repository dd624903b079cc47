use std::path::Path;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Who used the processors in a second in which nobody else in its group, and nobody else at all, did.
fn alone() -> Usage {
    Usage { elapsed: SECOND, own: SECOND, group: Some(SECOND), machine: SECOND, switches: 0 }
}

/// A look at who uses the processors, where only some events open: what is covered then, and what was asked for.
fn look(review: &mut Review, usage: Option<Usage>, now: Instant, opening: &[Reach]) -> (Reach, Vec<Reach>) {
    let mut asked = Vec::new();
    review.reach = review.choose(usage, now, |reach| {
        asked.push(reach);
        opening.contains(&reach)
    });
    (review.reach, asked)
}

/// Guarantees: where the events of the control group do not open, a command keeps the machine's, which it began with; and the group is asked for again
/// after a minute, not in each second.
#[test]
fn groups_that_do_not_open() {
    let (group, machine) = (Reach::Group, Reach::Machine);
    let start = Instant::now();
    let mut review = Review::new(start, true);
    review.group = Some(ControlGroup::at(Path::new("/")));
    assert_eq!(look(&mut review, None, start, &[machine]), (machine, vec![machine]));
    for second in 1..=60 {
        let asked = if second == 1 { vec![group, machine] } else { vec![machine] };
        let looked = look(&mut review, Some(alone()), start + second * SECOND, &[machine]);
        assert_eq!(looked, (machine, asked), "{second}");
    }
    assert_eq!(look(&mut review, Some(alone()), start + 61 * SECOND, &[machine, group]), (group, vec![group]));
}

/// Guarantees: a process that is in no control group is never asked for the events of one, even where it was sampled with some before.
#[test]
fn no_group() {
    let now = Instant::now();
    let mut review = Review::new(now, false);
    review.reach = Reach::Group;
    assert_eq!(look(&mut review, None, now, &[Reach::Group]), (Reach::Threads, vec![]));
    assert_eq!(look(&mut review, Some(alone()), now, &[Reach::Machine]), (Reach::Machine, vec![Reach::Machine]));
}
