//! Runs this program with other rights, as a session that prints what it received.

use std::{process::ExitCode, time::Duration};

use profbridge_sampler::message::Select;

use crate::session::TrapSession;

/// `drive PID PID...`: samples the processes until a line is on standard input, then prints what it received and ends.
///
/// ```text
/// saw PID KIND                  (at once, for each problem)
/// saw PID sample                (at once, for the first sample of each life)
/// saw PID Detached              (at once, at the end of each life)
/// problem PID KIND MESSAGE
/// life PID USER DETACHED SAMPLES BLOCKED-SAMPLES STOPS
/// level PID LEVEL
/// ```
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let mut session = TrapSession::start();
    for pid in arguments {
        session.watch(Select::Pid(pid.parse().unwrap()), Default::default());
    }
    println!("ready");
    for hint in session.seen.rights.iter().flat_map(|rights| &rights.hints) {
        println!("hint {hint}");
    }
    let (sender, line) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // If there is no standard input, there is nothing to wait for.
        std::io::stdin().read_line(&mut text).ok();
        sender.send(()).ok();
    });
    let (mut problems, mut lives) = (0, Vec::new());
    while line.try_recv().is_err() {
        session.listen(Duration::from_millis(20));
        for problem in &session.seen.problems[problems..] {
            println!("saw {} {:?}", problem.pid.unwrap_or(0), problem.kind);
        }
        problems = session.seen.problems.len();
        lives.resize(session.seen.lives.len(), (false, false));
        for (life, (sampled, detached)) in session.seen.lives.iter().zip(&mut lives) {
            let now = (!life.samples.is_empty(), life.detached);
            if now.0 && !*sampled {
                println!("saw {} sample", life.process.pid);
            }
            if let Some(why) = now.1.filter(|_| !*detached) {
                println!("saw {} {why:?}", life.process.pid);
            }
            (*sampled, *detached) = (now.0, now.1.is_some());
        }
    }
    let seen = session.finish();
    for problem in &seen.problems {
        println!("problem {} {:?} {}", problem.pid.unwrap_or(0), problem.kind, problem.message.replace('\n', " "));
    }
    for life in &seen.lives {
        let blocked = life.samples.iter().filter(|observed| observed.sample.blocked).count();
        let (process, detached) = (&life.process, life.detached);
        println!(
            "life {} {} {detached:?} {} {blocked} {}",
            process.pid,
            process.user,
            life.samples.len(),
            life.status.stops
        );
        println!("level {} {:?}", process.pid, life.status.level);
    }
    println!("done");
    ExitCode::SUCCESS
}
