use std::ffi::OsString;

use super::*;

fn read(yaml: &str) -> Result<Settings, String> {
    Settings::read(&Section::from_yaml(yaml).unwrap()).map_err(|problems| problems.to_string())
}

fn one(yaml: &str) -> TargetSettings {
    read(yaml).unwrap_or_else(|problems| panic!("{problems}")).targets.remove(0)
}

/// Guarantees: a target with only a selection gets the documented defaults.
/// rule: sample-format-v2#collecting-rate, profiles-sdk#frequency, profiles-sdk#session-sample-rate
/// rule: profiles-sdk#lifecycle-option, profiles-sdk#start-on-app-start
#[test]
fn defaults() {
    let settings = read("targets: {web: {pid: 7}}").unwrap();
    let target = &settings.targets[0];
    assert_eq!((&*target.name, &target.select), ("web", &Select::Pid(7)));
    let sampling = message::Settings {
        rate_hertz: 101.0,
        mode: message::Mode::Wall,
        max_cpu: 0.10,
        max_stopped: 0.02,
        max_stack: 256 << 10,
        max_processes: 64,
        subprocesses: false,
        stops: message::Stops::UserBound,
        interpreters: true,
    };
    assert_eq!(target.sampling, sampling);
    assert_eq!(
        (target.lifecycle, target.start_on_launch, target.session_sample_rate),
        (LifecycleMode::Manual, true, 1.0)
    );
    assert_eq!(settings.export_interval, Duration::from_secs(5));
    assert_eq!(settings.control.as_ref().map(|control| control.required), Some(false));
    assert!(settings.symbolizer.is_some() && !settings.realtime);
}

/// Guarantees: each way to select processes is parsed correctly.
#[test]
fn selects() {
    assert_eq!(one("targets: {a: {executable: 'python3*'}}").select, Select::Executable("python3*".into()));
    assert_eq!(one("targets: {a: {command_line: gunicorn}}").select, Select::CommandLine("gunicorn".into()));
    assert_eq!(one("targets: {a: {cgroup: /app.slice}}").select, Select::ControlGroup("/app.slice".into()));
    assert_eq!(one("targets: {a: {container: 0123456789ab}}").select, Select::Container("0123456789ab".into()));
    let command = one("targets: {a: {command: [python3, -c, 'pass']}}").select;
    assert_eq!(command, Select::Command(["python3", "-c", "pass"].map(OsString::from).to_vec()));
}

/// Guarantees: every key sets its documented setting.
/// rule: profiles-sdk#lifecycle-option
#[test]
fn everything() {
    let settings = read(
        "{export_interval: 1s, max_pending_bytes: 1MiB, priority: realtime, \
          control: {socket: /run/p.sock, max_connections: 3}, \
          symbolize: {enabled: false, max_wait: 0s}, \
          targets: {a: {pid: 1, rate: 49.5, mode: cpu, profile_lifecycle: trace, profile_session_sample_rate: 0.25, \
            max_cpu: 0.5, max_stopped: 0.1, max_stack: 64KiB, max_processes: 2, subprocesses: true, \
            service: {name: n, version: 1.10, environment: e, release: r}}}}",
    )
    .unwrap();
    let target = &settings.targets[0];
    assert_eq!(target.sampling.rate_hertz, 49.5);
    assert_eq!((target.sampling.mode, target.lifecycle), (message::Mode::Cpu, LifecycleMode::Trace));
    assert!(target.sampling.subprocesses);
    assert_eq!((target.sampling.max_stack, target.sampling.max_processes), (64 << 10, 2));
    assert_eq!(target.session_sample_rate, 0.25);
    assert_eq!(target.names.version.as_deref(), Some("1.10"));
    assert!(settings.realtime && settings.symbolizer.is_none());
    let control = settings.control.unwrap();
    assert_eq!((control.socket.to_str().unwrap(), control.required, control.max_connections), ("/run/p.sock", true, 3));
}

/// Guarantees: each choice of the threads to stop is parsed correctly; the default does not disturb any program.
#[test]
fn stops() {
    let stops = |text: &str| one(&format!("targets: {{a: {{pid: 1{text}}}}}")).sampling.stops;
    assert_eq!(stops(""), message::Stops::UserBound);
    assert_eq!(stops(", stops: user-bound"), message::Stops::UserBound);
    assert_eq!(stops(", stops: never"), message::Stops::Never);
    assert_eq!(stops(", stops: always"), message::Stops::Always);
}

/// Guarantees: samples have no thread attributes unless keys are configured; keys that describe or identify the
/// process, or route its profiles, are rejected, and so are keys that are repeated, too long or too many.
#[test]
fn thread_attributes() {
    let read_keys = |keys: &str| read(&format!("{{thread_attributes: {keys}, targets: {{a: {{pid: 1}}}}}}"));
    assert_eq!(read("targets: {a: {pid: 1}}").unwrap().thread_attributes, [""; 0]);
    assert_eq!(read_keys("[http.route, a]").unwrap().thread_attributes, ["http.route", "a"]);
    for own in
        ["service.name", "process.pid", "host.id", "thread.id", "sentry.profiler_id", "deployment.environment.name"]
    {
        let refusal = read_keys(&format!("[x, {own}]")).unwrap_err();
        assert!(refusal.contains("thread_attributes[1]") && refusal.contains("routed"), "{refusal}");
    }
    assert!(read_keys("[a, b, a]").unwrap_err().contains("is there twice"));
    assert!(read_keys("['']").unwrap_err().contains("1 to 256 bytes"));
    assert!(read_keys(&format!("[{}]", "k".repeat(257))).unwrap_err().contains("1 to 256 bytes"));
    let many: Vec<String> = (0..33).map(|key| format!("k{key}")).collect();
    assert!(read_keys(&format!("[{}]", many.join(","))).unwrap_err().contains("at most 32 keys"));
}
