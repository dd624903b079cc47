use super::*;

/// Guarantees: the batch contains everything that was added, in order and under its own parents, and equal elements
/// once.
#[test]
fn builds_what_it_was_told() {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "a".into()), ("list", Any::Array(&[1.into(), Any::Bytes(b"x")]))]);
    builder.scope("scope", "2");
    builder.on_cpu(20);
    let frame = builder.frame("f", "f.rs", 1);
    let same = builder.frame("f", "f.rs", 1);
    assert_eq!(frame, same);
    let stack = builder.stack(&[frame, None, same]);
    let thread = builder.attributes(&[("thread.id", 4.into()), ("thread.name", "main".into())]);
    let swapped = builder.attributes(&[("thread.name", "main".into()), ("thread.id", 4.into())]);
    assert_eq!(thread, swapped);
    let link = builder.link([1; 16], [2; 8]);
    builder.sample(stack, thread, link, &[10, u64::MAX], &[-3, 4]);
    builder.resource(&[("service.name", "b".into())]);
    builder.sample(None, None, None, &[], &[7]);
    let profiles = builder.finish().unwrap();

    assert_eq!(profiles.observations(), 3);
    let [a, b] = profiles.resources() else { panic!("two resources") };
    let names: Vec<_> =
        [a, b].map(|resource| profiles.find(&resource.resource.attributes, "service.name").cloned()).into();
    let expected = ["a", "b"].map(|name| dictionary_string(&profiles, name));
    assert_eq!(names, expected);
    let profile = &a.scopes[0].profiles[0];
    assert_eq!(profile.period, 50_000_000);
    let dictionary = profiles.dictionary();
    assert_eq!(dictionary.string(profile.sample_type.kind), "samples");
    assert_eq!(dictionary.string(a.scopes[0].scope.name), "scope");
    let sample = profiles.samples(profile).next().unwrap();
    assert_eq!(sample.timestamps().collect::<Vec<_>>(), [10, u64::MAX]);
    assert_eq!(sample.values().collect::<Vec<_>>(), [-3, 4]);
    assert_eq!(dictionary.stack(sample.stack).collect::<Vec<_>>(), [frame, None, frame]);
    assert_eq!(dictionary.find(sample.attributes, "thread.id"), Some(&Value::Int(4)));
    assert_eq!(b.scopes[0].profiles[0].samples, 1..2);
}

/// Guarantees: ids of other batches, and samples that break a rule, are refused with their place.
#[test]
fn refuses_what_breaks_a_rule() {
    let mut builder = Builder::new();
    builder.sample(StackId::new(5), None, None, &[1], &[]);
    let error = builder.finish().unwrap_err();
    assert!(error.place.ends_with("profiles[0].samples[0].stack_index"), "{error}");

    let mut builder = Builder::new();
    builder.sample(None, None, None, &[1, 2], &[1]);
    assert_eq!(builder.finish().unwrap_err().rule, "there are 1 values for 2 timestamps");
}

fn dictionary_string(profiles: &Profiles, text: &str) -> Option<Value> {
    let strings = 0..profiles.dictionary().tables().strings.len() as u32;
    let id = strings.map(StringId::new).find(|&id| profiles.dictionary().string(id) == text)?;
    Some(Value::String(id))
}
