//! Repeats measurements that a busy machine disturbs.

/// Runs a measurement until it succeeds, at most three times: other load on the machine shifts times at random, whereas
/// an error of the sampler occurs in each run. A result that must never occur is asserted by `run` itself.
pub(crate) fn by_some_run(mut run: impl FnMut() -> Result<(), String>) {
    let mut said = Vec::new();
    for _ in 0..3 {
        match run() {
            Ok(()) => return,
            Err(measured) => said.push(measured),
        }
    }
    panic!("in no run: {}", said.join("\n"));
}
