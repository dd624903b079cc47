//! Checks the configuration as written, and converts it to settings.

use std::ffi::OsString;

use profbridge_engine::config::{Problem, Problems, Section};
use profbridge_sampler::context::{MAX_ALLOWED, MAX_KEY};
use profbridge_sampler::message::{self, Select};

use super::{Config, ControlSettings, Priority, Settings, TargetConfig, TargetSettings};
use crate::control::path::default_path;
use crate::lifecycle::LifecycleMode;

/// The longest path of a socket, in bytes. `sun_path` has 108 (unix(7)), and the socket is first created under a
/// longer name.
const MAX_SOCKET_PATH: usize = 100;

/// Prefixes of attribute keys that describe the process or its profiles, or that are moved from samples to their
/// resource.
const RESERVED: [&str; 12] = [
    "process.",
    "container.",
    "service.",
    "host.",
    "k8s.",
    "os.",
    "deployment.",
    "telemetry.",
    "thread.",
    "profile.",
    "profbridge.",
    "sentry.",
];

/// The shortest abbreviation of a container id.
const MIN_CONTAINER: usize = 12;

impl Config {
    pub(super) fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut checker = TargetChecker { section, problems: Vec::new() };
        if self.targets.is_empty() {
            let hint = "name one: targets: {app: {executable: /usr/bin/app}}";
            checker.broken("targets", "there is nothing to sample", hint);
        }
        let targets: Vec<_> = self.targets.into_iter().map(|(name, target)| target.check(name, &mut checker)).collect();
        if self.export_interval.is_zero() {
            checker.broken("export_interval", "must be longer than 0s", "the default is 5s");
        }
        if self.max_pending_bytes.get() == 0 {
            checker.broken("max_pending_bytes", "must be more than 0", "the default is 32MiB");
        }
        if self.control.max_connections == 0 {
            checker.broken("control.max_connections", "must be at least 1", "enabled: false switches control off");
        }
        let traces = targets.iter().any(|target| target.lifecycle == LifecycleMode::Trace);
        if traces && !self.control.enabled {
            let message = "profile_lifecycle: trace needs it, since spans are announced there";
            checker.broken("control.enabled", message, "leave it at true");
        }
        let required = traces || self.control.socket.is_some();
        let socket = self.control.socket.unwrap_or_else(default_path);
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            let message = format!("a socket's path has at most {MAX_SOCKET_PATH} bytes");
            checker.broken("control.socket", &message, "choose a shorter one");
        }
        let control = ControlSettings { socket, required, max_connections: self.control.max_connections };
        let symbolizer = profbridge_symbolizer::Settings {
            cache_bytes: self.symbolize.cache.as_usize(),
            debug_folders: self.symbolize.debug_folders,
            dwarf: self.symbolize.dwarf,
            fuse: self.symbolize.fuse,
            ..profbridge_symbolizer::Settings::default()
        };
        checker.problems.extend(self.symbolize.debuginfod.check(section, "symbolize.debuginfod"));
        let insert = self.resource.insert.check(section, "resource.insert", &mut checker.problems);
        checker.thread_attributes(&self.thread_attributes);
        Problems::check(checker.problems)?;
        Ok(Settings {
            insert,
            thread_attributes: self.thread_attributes,
            targets,
            export_interval: self.export_interval.get(),
            max_pending_bytes: self.max_pending_bytes.get(),
            realtime: self.priority == Priority::Realtime,
            control: self.control.enabled.then_some(control),
            symbolizer: self.symbolize.enabled.then_some(symbolizer),
            debuginfod: self.symbolize.debuginfod,
            max_wait: self.symbolize.max_wait.get(),
        })
    }
}

/// Creates a selection from its text.
type ByText = fn(String) -> Select;

struct TargetChecker<'a> {
    section: &'a Section,
    problems: Vec<Problem>,
}

impl TargetChecker<'_> {
    fn broken(&mut self, path: &str, message: &str, hint: &str) {
        self.problems.push(self.section.problem(path, message, hint));
    }

    fn thread_attributes(&mut self, keys: &[String]) {
        if keys.len() > MAX_ALLOWED {
            let message = format!("has at most {MAX_ALLOWED} keys");
            self.broken("thread_attributes", &message, "name those that are looked at");
        }
        for (index, key) in keys.iter().enumerate() {
            let path = format!("thread_attributes[{index}]");
            if key.is_empty() || key.len() > MAX_KEY {
                self.broken(&path, &format!("a key has 1 to {MAX_KEY} bytes"), "such as http.route");
            }
            if keys[..index].contains(key) {
                self.broken(&path, "is there twice", "delete one of them");
            }
            if let Some(own) = RESERVED.iter().find(|own| key.starts_with(**own)) {
                let message = format!("no program decides on {own}*: a process is known and routed by such attributes");
                self.broken(&path, &message, "delete it");
            }
        }
    }
}

impl TargetConfig {
    fn check(self, name: String, checker: &mut TargetChecker<'_>) -> TargetSettings {
        let at = format!("targets.\"{name}\"");
        let path = |key: &str| format!("{at}.{key}");
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            checker.broken(&at, "a target's name has 1 to 64 letters, digits, `_`, `.` and `-`", "rename it");
        }
        let mut selects = Vec::new();
        if let Some(pid) = self.pid {
            if pid == 0 {
                checker.broken(&path("pid"), "a process id is 1 or more", "");
            }
            selects.push(Select::Pid(pid));
        }
        if let Some(command) = self.command {
            if command.first().is_none_or(String::is_empty) {
                checker.broken(&path("command"), "a command starts with a program", "command: [python3, app.py]");
            }
            if command.iter().any(|argument| argument.contains('\0')) {
                checker.broken(&path("command"), "an argument must not contain a zero byte", "");
            }
            selects.push(Select::Command(command.into_iter().map(OsString::from).collect()));
        }
        let texts: [(&str, Option<String>, ByText); 4] = [
            ("executable", self.executable, Select::Executable),
            ("command_line", self.command_line, Select::CommandLine),
            ("cgroup", self.cgroup, Select::ControlGroup),
            ("container", self.container, Select::Container),
        ];
        for (key, text, select) in texts {
            let Some(text) = text else { continue };
            if text.is_empty() || text.len() > 4096 {
                checker.broken(&path(key), "has 1 to 4096 bytes", "");
            }
            if key == "container" && !(text.len() >= MIN_CONTAINER && text.bytes().all(|c| c.is_ascii_hexdigit())) {
                let message = "a container's id has at least 12 hexadecimal digits";
                checker.broken(&path(key), message, "docker ps shows 12, docker inspect all");
            }
            if key == "cgroup" && !text.starts_with('/') {
                let hint = "such as /system.slice/app.service, see /proc/PID/cgroup";
                checker.broken(&path(key), "a control group's path starts with a slash", hint);
            }
            selects.push(select(text));
        }
        if selects.len() != 1 {
            let message = match selects.len() {
                0 => "says of no process that it is meant",
                _ => "says in several ways which process is meant",
            };
            let hint = "one of pid, command, executable, command_line, cgroup, container";
            checker.broken(&at, message, hint);
        }
        let mut within = |key: &str, value: f64, low: f64, high: f64, rule: &str| {
            // This also rejects NaN, which is in no range.
            if !(low..=high).contains(&value) {
                checker.broken(&path(key), rule, "");
            }
        };
        within("rate", self.rate, 1.0, 1000.0, "is from 1 to 1000 samples in a second");
        within("profile_session_sample_rate", self.profile_session_sample_rate, 0.0, 1.0, "is from 0 to 1");
        within("max_cpu", self.max_cpu, 0.001, 1.0, "is a share of one core, from 0.001 to 1");
        within("max_stopped", self.max_stopped, 0.0001, 1.0, "is a share of time, from 0.0001 to 1");
        if !((4 << 10)..=(64 << 20)).contains(&self.max_stack.get()) {
            checker.broken(&path("max_stack"), "is from 4KiB to 64MiB", "the default is 256KiB");
        }
        if !(1..=10_000).contains(&self.max_processes) {
            checker.broken(&path("max_processes"), "is from 1 to 10000", "the default is 64");
        }
        let explicit = checker.section.has(&path("start_on_launch")) && self.start_on_launch;
        if explicit && self.profile_lifecycle == LifecycleMode::Trace {
            let message = "has no meaning with profile_lifecycle: trace, where spans start the profiler";
            checker.broken(&path("start_on_launch"), message, "leave it out");
        }
        TargetSettings {
            select: selects.pop().unwrap_or(Select::Pid(0)),
            sampling: message::Settings {
                rate_hertz: self.rate,
                mode: self.mode,
                max_cpu: self.max_cpu,
                max_stopped: self.max_stopped,
                max_stack: self.max_stack.as_usize(),
                max_processes: self.max_processes,
                subprocesses: self.subprocesses,
                stops: self.stops,
                interpreters: true,
            },
            lifecycle: self.profile_lifecycle,
            start_on_launch: self.start_on_launch,
            session_sample_rate: self.profile_session_sample_rate,
            names: self.service,
            name,
        }
    }
}
