//! Privileges of a process with pipelines. Only its sampler process may trace others, unless another component needs
//! that right.
//!
//! A process that listens on ports should not be able to read the memory of all others. The sampler is this program,
//! executed once more: for root and for a file with capabilities, the kernel grants its capabilities anew
//! (capabilities(7), "Transformation of capabilities during execve"). Ambient capabilities, and those of a process
//! under `no_new_privs`, are inherited instead: if this process drops them, the sampler loses them as well.

use profbridge_engine::config::{ComponentId, Config, Section};
use rustix::thread::{CapabilitySet, capabilities};

/// Drops the capabilities that no component needs, in this thread and all threads that it starts. Logs why the right to
/// trace is kept, if it is. Must be called before there are other threads.
pub(crate) fn leave_tracing_to_the_sampler(config: &Config) {
    let traces = capabilities(None).is_ok_and(|held| held.permitted.contains(CapabilitySet::SYS_PTRACE));
    let samples = samples(config);
    let opens = "opens their files with it, unless it is told `processes: false`";
    let looks = "looks with it whose sockets send, as it is told by `resolve_clients: true`";
    let users = [(opens_files_of_processes(config), opens), (looks_for_clients(config), looks)];
    let mut why = users.into_iter().find_map(|(id, why)| Some(format!("`{}` {why}", id?)));
    let hands_on = samples && profbridge_sampler::hands_rights_on();
    let left = if hands_on { Ok(()) } else { profbridge_sampler::confine_host(why.is_some(), samples) };
    if hands_on {
        why.get_or_insert_with(|| {
            "its sampler gets only what it has, since its rights are ambient or it is under `no_new_privs`; as a capability \
             of the file (setcap cap_sys_ptrace=ep), without that, the sampler alone would have it"
                .to_owned()
        });
    }
    if let Some(why) = why.filter(|_| traces) {
        tracing::info!("this process keeps the right to trace others (CAP_SYS_PTRACE): {why}");
    }
    if let Err(error) = left {
        tracing::warn!("what this process does not need could not be given up: {error}");
    }
}

/// Whether a pipeline has a sampler.
fn samples(config: &Config) -> bool {
    config.pipelines.iter().any(|(_, pipeline)| pipeline.receivers.iter().any(|used| used.id.kind == "ptrace"))
}

/// The processor, if any, that opens files of other processes through `/proc/PID/root`, which needs the right to trace
/// them.
fn opens_files_of_processes(config: &Config) -> Option<&ComponentId> {
    let used = config.pipelines.iter().flat_map(|(_, pipeline)| &pipeline.processors).map(|used| &used.id);
    used.filter(|id| id.kind == "symbolize").find(|id| {
        let read = |section: &Section| section.extract::<profbridge_processor_symbolize::Config>();
        // Unreadable sections were rejected before. If not, keeping the right would change nothing.
        config.processors.get(id).is_some_and(|section| read(section).map_or(true, |config| config.processes))
    })
}

/// The receiver, if any, that identifies its clients' processes, which needs the right to trace those of other users.
fn looks_for_clients(config: &Config) -> Option<&ComponentId> {
    let used = config.pipelines.iter().flat_map(|(_, pipeline)| &pipeline.receivers).map(|used| &used.id);
    used.filter(|id| id.kind == "sentry").find(|id| {
        let read = |section: &Section| section.extract::<profbridge_receiver_sentry::Config>();
        // Unreadable sections were rejected before.
        config.receivers.get(id).is_some_and(|section| read(section).is_ok_and(|config| config.resolve_clients))
    })
}

#[cfg(test)]
mod tests {
    use profbridge_engine::config::{Source, load};

    use super::*;

    fn config(processors: &str, used: &str) -> Config {
        let text = format!(
            "receivers: {{otlp: , ptrace: {{targets: {{a: {{pid: 1}}}}}}}}
processors: {processors}
exporters: {{debug: }}
service: {{pipelines: {{profiles: {{receivers: [otlp], processors: {used}, exporters: [debug]}}}}}}
"
        );
        load(&[Source::Text { name: "test".to_owned(), text }], &|_| None).unwrap()
    }

    /// Guarantees: only a `symbolize` that is in a pipeline and searches processes needs the right. With several, one
    /// of them is named.
    #[test]
    fn who_opens_files() {
        let opens = |processors, used| opens_files_of_processes(&config(processors, used)).map(ToString::to_string);
        assert_eq!(opens("{chunk: }", "[chunk]"), None);
        assert_eq!(opens("{symbolize: , chunk: }", "[chunk]"), None);
        assert_eq!(opens("{symbolize: }", "[symbolize]").as_deref(), Some("symbolize"));
        assert_eq!(opens("{symbolize: {processes: false}}", "[symbolize]"), None);
        let two = "{symbolize/own: {processes: true}, symbolize: {processes: false}}";
        assert_eq!(opens(two, "[symbolize]"), None);
        assert_eq!(opens(two, "[symbolize/own]").as_deref(), Some("symbolize/own"));
    }

    /// Guarantees: only a receiver that is in a pipeline and identifies its clients needs the right.
    #[test]
    fn who_looks_for_clients() {
        let looks = |receivers: &str, used: &str| {
            let text = format!(
                "receivers: {receivers}
exporters: {{debug: }}
service: {{pipelines: {{everything: {{receivers: {used}, exporters: [debug]}}}}}}
"
            );
            let config = load(&[Source::Text { name: "test".to_owned(), text }], &|_| None).unwrap();
            looks_for_clients(&config).map(ToString::to_string)
        };
        let two = "{sentry: , sentry/own: {resolve_clients: true}}";
        assert_eq!(looks(two, "[sentry]"), None);
        assert_eq!(looks(two, "[sentry, sentry/own]").as_deref(), Some("sentry/own"));
    }

    /// Guarantees: a sampler that is in no pipeline does not count.
    #[test]
    fn who_samples() {
        let mut config = config("{}", "[]");
        assert!(!samples(&config));
        let used = "service: {pipelines: {profiles: {receivers: [ptrace], exporters: [debug]}}}\n";
        let text = format!("receivers: {{ptrace: {{targets: {{a: {{pid: 1}}}}}}}}\nexporters: {{debug: }}\n{used}");
        config = load(&[Source::Text { name: "test".to_owned(), text }], &|_| None).unwrap();
        assert!(samples(&config));
    }
}
