use super::*;

/// Guarantees: ids of other batches, and samples that break a rule, are refused, and the error names their place.
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
