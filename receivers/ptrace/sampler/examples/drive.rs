//! Samples one process with the sampling thread alone, without the sampler process around it, and prints what sampling
//! cost: `drive PID [SECONDS] [HERTZ] [wall|cpu] [realtime] [stacks]`; with `stacks`, also the stacks with named
//! functions of an interpreter, and the time spent in each.

#[cfg(target_os = "linux")]
#[allow(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;
    use std::time::{Duration, Instant};

    use nix::sys::signal::{SigSet, Signal};
    use profbridge_sampler::address_space::AddressSpace;
    use profbridge_sampler::elf::ObjectCache;
    use profbridge_sampler::message::{Function, Location, Mode, ProcessId, Settings, Status};
    use profbridge_sampler::process_files::ProcessFiles;
    use profbridge_sampler::sampler::{SamplerOptions, SamplerOutput, SamplingThread};

    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    // In a session of its own, this process's priority counts against all other processes.
    nix::unistd::setsid().ok();

    let mut arguments = std::env::args().skip(1);
    let pid = arguments.next().ok_or("which process?")?.parse()?;
    let seconds = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let rate_hertz = arguments.next().map_or(Ok(101.0), |text| text.parse())?;
    let words: Vec<String> = arguments.collect();
    let has = |word: &str| words.iter().any(|other| other == word);
    let mode = if has("cpu") { Mode::Cpu } else { Mode::Wall };
    let (realtime, stacks) = (has("realtime"), has("stacks"));

    let files = Arc::new(ProcessFiles::open(pid)?);
    let mut cache = ObjectCache::default();
    let mut space = Arc::new(AddressSpace::load(&*files, None, &mut cache)?);
    let (out, outputs) = sync_channel(1024);
    let sampler = SamplingThread::start(SamplerOptions { realtime }, out, || {})?;
    let process = ProcessId(1);
    let settings = Settings { rate_hertz, mode, ..Settings::default() };
    sampler.attach(process, Arc::clone(&files), Arc::clone(&space), settings);
    sampler.sample(process, true);
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut status = Status::default();
    let mut weight = 0;
    let mut trusts = std::collections::BTreeMap::new();
    let mut leaves = std::collections::BTreeMap::<_, u64>::new();
    let mut functions = Vec::new();
    let mut named = std::collections::BTreeMap::<String, u64>::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match outputs.recv_timeout(left) {
            Ok(SamplerOutput::Batch(batch)) => {
                for sample in &batch.samples {
                    weight += sample.weight_nano;
                    let stack = &batch.stacks[sample.stack as usize];
                    let counts = trusts.entry((sample.blocked, stack.trust as u8)).or_insert((stack.trust, 0));
                    counts.1 += sample.observations;
                    let place = |location: &u32| match batch.locations[*location as usize] {
                        Location::Interpreted { function, line } => {
                            let Function { name, file, .. } = &functions[function as usize];
                            format!("{name}@{}:{line}", file.rsplit('/').next().unwrap_or_default())
                        }
                        Location::Native { .. } | Location::Compiled { .. } => ".".to_owned(),
                    };
                    if stacks {
                        let frames: Vec<String> = stack.locations.iter().map(place).collect();
                        let state = if sample.blocked { "blocked" } else { "running" };
                        *named.entry(format!("{state} {}", frames.join(" "))).or_default() += sample.weight_nano;
                    }
                    let leaf = stack.locations.first().map(|&leaf| batch.locations[leaf as usize]);
                    *leaves
                        .entry((
                            sample.blocked,
                            stack.trust as u8,
                            stack.locations.len(),
                            leaf.map(|leaf| (leaf.mapping(), leaf.address() >> 8)),
                        ))
                        .or_default() += sample.weight_nano;
                }
            }
            Ok(SamplerOutput::Functions { functions: fresh, .. }) => functions.extend(fresh),
            Ok(SamplerOutput::Status(now)) => status = now,
            Ok(SamplerOutput::Reload { .. }) => {
                space = Arc::new(AddressSpace::load(&*files, Some(&space), &mut cache)?);
                sampler.set_space(process, Instant::now(), Arc::clone(&space));
            }
            Ok(SamplerOutput::Gone { why, .. }) => {
                println!("gone: {why:?}");
                break;
            }
            Ok(other) => println!("{other:?}"),
            Err(_) => break,
        }
    }
    let took = start.elapsed();
    sampler.stop();
    for output in outputs.try_iter() {
        match output {
            SamplerOutput::Batch(batch) => weight += batch.samples.iter().map(|sample| sample.weight_nano).sum::<u64>(),
            SamplerOutput::Status(now) => status = now,
            other => println!("{other:?}"),
        }
    }
    let mut leaves: Vec<_> = leaves.into_iter().collect();
    leaves.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    for (key, weight) in leaves.iter().take(8) {
        println!("{:8.3} s  {key:x?}", *weight as f64 / 1e9);
    }
    let mut named: Vec<_> = named.into_iter().collect();
    named.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    for (stack, weight) in named {
        println!("{:8.3} s  {stack}", weight as f64 / 1e9);
    }
    let observations: u32 = trusts.values().map(|(_, count)| count).sum();
    for ((blocked, _), (trust, count)) in trusts {
        let (state, share) =
            (if blocked { "blocked" } else { "stopped" }, 100.0 * f64::from(count) / f64::from(observations));
        println!("{state} {trust:?}: {count} observations, {share:.2} %");
    }
    let quantile = |share: f64| {
        let wanted = (status.stops as f64 * share) as u64;
        let mut seen = 0;
        status
            .stop_lengths
            .iter()
            .position(|count| {
                seen += count;
                seen > wanted
            })
            .map_or(0, |class| 1 << class)
    };
    println!(
        "{:.2} s, weight {:.3} s, cpu {:.2} %, stop p50 <={} us p99 <={} us max {} us\n{status:?}",
        took.as_secs_f64(),
        weight as f64 / 1e9,
        status.sampler_cpu_nano as f64 / 1e7 / took.as_secs_f64(),
        quantile(0.5),
        quantile(0.99),
        status.longest_stop_nano / 1000,
    );
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {}
