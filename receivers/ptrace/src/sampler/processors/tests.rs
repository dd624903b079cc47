use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::*;
use crate::address_space::AddressSpace;
use crate::elf::ObjectCache;
use crate::message::Settings;
use crate::process_files::ProcessFiles;
use crate::sampler::seizing::Seizing;

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

/// Events that cover a group or the machine, on these processors, for a process.
fn set(group: Option<&str>, online: &[u32], process: u32) -> Processors {
    Processors {
        group: group.map(|path| ControlGroup::at(Path::new(path))),
        period_nano: 1,
        varying: Varying::new(1, 1, Instant::now()),
        rings: Vec::new(),
        online: online.to_vec(),
        processes: vec![(ProcessId(process.into()), process)],
    }
}

/// Guarantees: the events of a process cover what they are to cover only while they are of all processors that are switched on, and of no other; those of another process
/// do not count, nor do those of another group.
#[test]
fn processors_that_are_switched() {
    let mut events = Events::new().unwrap();
    events.processors = vec![set(None, &[0, 1], 1), set(None, &[0], 2), set(Some("/"), &[0, 1], 3)];
    for (online, covered) in
        [(&[0, 1][..], [true, false, true]), (&[0], [false, true, false]), (&[0, 1, 2], [false; 3]), (&[1], [false; 3])]
    {
        events.machine.online = online.to_vec();
        let root = ControlGroup::at(Path::new("/"));
        let covers = [(1, None), (2, None), (3, Some(&root))].map(|(id, group)| events.covers(ProcessId(id), group));
        assert_eq!(covers, covered, "{online:?}");
    }
    events.machine.online = vec![0, 1];
    for (id, group) in [(1, Some("/")), (3, None), (3, Some("/proc"))] {
        let group = group.map(|path| ControlGroup::at(Path::new(path)));
        assert!(!events.covers(ProcessId(id), group.as_ref()), "{id} {group:?}");
    }
}

/// Guarantees: events that are not of all processors are replaced at the next look, and nothing is left of them; those that are stay.
#[test]
fn events_follow_the_processors() {
    let (wake, (out, _said), now) = (|| {}, sync_channel(16), Instant::now());
    let files = Arc::new(ProcessFiles::open(std::process::id()).unwrap());
    let space = Arc::new(AddressSpace::load(&*files, None, &mut ObjectCache::default()).unwrap());
    let mut process = Active::new(ProcessId(1), files, space, Settings::default(), now);
    process.watch = Watch::Events(Rung::Kernel);
    process.review = Review::new(now, true);
    let mut engine = Engine::new(out, &wake, Seizing::start().unwrap(), Events::new().ok());
    engine.processes.push(process);
    let all = online_processors().unwrap();
    let mut look = |online: &[u32], second: u32| {
        let events = engine.events.as_mut().unwrap();
        // As if they had just been read.
        let at = now + second * SECOND;
        events.machine = Machine { read: Some(at), online: online.to_vec(), ..Machine::default() };
        engine.review_reach(0, at);
        let sets = engine.events.iter().flat_map(|events| &events.processors);
        sets.map(|set| (set.online.clone(), set.rings[0].0.as_raw_fd(), set.processes.clone())).collect::<Vec<_>>()
    };
    let before = look(&all[..1], 0);
    let [(online, _, processes)] = &before[..] else {
        eprintln!("untested here: no events of processors are permitted");
        return;
    };
    assert_eq!((&online[..], processes.len()), (&all[..1], 1));
    assert_eq!(look(&all[..1], 1), before);
    let after = look(&all, 2);
    assert_eq!(after.len(), 1);
    assert_eq!((&after[0].0, &after[0].2), (&all, processes));
}
