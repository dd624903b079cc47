//! The owner reads arbitrary packets, as from a sampler process that an attacker has taken over.
//!
//! Each packet is a length of two bytes, followed by as many bytes. Guarantees: no panic; an accepted event refers only
//! to announced processes, mappings and functions; its re-encoded form is accepted too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::message::{Command, Event, Location, ProcessId, Rights, Select, Settings, Target, TargetId};
use profbridge_sampler::protocol::{PacketChecker, decode_command, decode_event, encode_event, split};

fuzz_target!(|data: &[u8]| {
    let mut checker = PacketChecker::default();
    for id in 0..4 {
        checker.note(&Command::Watch(Target {
            id: TargetId(id),
            select: Select::Pid(1),
            settings: Settings::default(),
            environment: vec!["A".to_owned()],
            thread_attributes: vec!["a".to_owned(), "b".to_owned()],
            sample_at_once: true,
        }));
    }
    checker.check(&Event::Ready(Rights::default())).unwrap();
    let mut announced = std::collections::HashMap::<ProcessId, (u32, u32)>::new();
    let mut rest = data;
    while let Some(([low, high], behind)) = rest.split_first_chunk::<2>().map(|(length, behind)| (*length, behind)) {
        let length = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (packet, behind) = behind.split_at(length);
        rest = behind;
        drop(decode_command(packet));
        let Ok(event) = decode_event(packet, None) else {
            continue;
        };
        if checker.check(&event).is_err() {
            continue;
        }
        match event {
            Event::Attached(process) => {
                announced.insert(process.id, (0, 0));
            }
            Event::Mapping(mapping) => announced.get_mut(&mapping.process).unwrap().0 += 1,
            Event::Functions { process, functions, .. } => {
                announced.get_mut(&process).unwrap().1 += functions.len() as u32;
                assert!(functions.iter().all(|one| !one.name.contains(char::is_control)));
            }
            Event::Batch(batch) => {
                let (mappings, functions) = announced[&batch.process];
                assert!(batch.contexts.iter().flat_map(|context| &context.attributes).all(|(key, _)| *key < 2));
                for sample in &batch.samples {
                    assert!(sample.context.is_none_or(|context| batch.contexts.get(context as usize).is_some()));
                    assert!(batch.threads.get(sample.thread as usize).is_some());
                    for place in &batch.stacks[sample.stack as usize].locations {
                        assert!(match batch.locations[*place as usize] {
                            Location::Native { mapping, .. } => mapping.is_none_or(|mapping| mapping < mappings),
                            Location::Compiled { .. } => true,
                            Location::Interpreted { function, .. } => function < functions,
                        });
                    }
                }
                let before: u64 = batch.samples.iter().map(|sample| u64::from(sample.observations)).sum();
                let mut after = 0;
                for part in split(&batch) {
                    after += part.samples.iter().map(|sample| u64::from(sample.observations)).sum::<u64>();
                    let again = encode_event(Event::Batch(part));
                    checker.check(&decode_event(&again.bytes, None).unwrap()).unwrap();
                }
                assert_eq!(before, after);
            }
            _ => {}
        }
    }
});
