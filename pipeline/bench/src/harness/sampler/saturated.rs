//! Samples that the kernel has no room for, on a machine whose processors have much more to do than they can.

use std::time::Duration;

use profbridge_sampler::message::Settings;

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options,
    perf::Perf,
    session::Session,
    targets::Programs,
};

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let time = Duration::from_secs_f64(options.seconds * 2.0);
    let target = programs.start("busy", &["8", "0"])?;
    let _others = programs.start("busy", &["16", "0"])?;
    let mut session = Session::start(target.pid(), Settings::default(), true)?;
    session.listen(time)?;
    session.finish()?;
    let name = format!("lost samples, 8 busy beside 16 of others: of {}", session.status.observations);
    report.figure(name, session.total(|status| status.lost_samples) as f64, "", Some(Goal::AtMost(0.0)));
    let late = session.total(|status| status.lost_observations);
    report.figure("  lost since this program did not keep up", late as f64, "", Some(Goal::AtMost(0.0)));
    report.detail("saturated", format!("{:?}", session.status));
    if Perf::works() {
        let perf = Perf::start(programs.folder(), target.pid(), Settings::default().rate_hertz, "dwarf,16384")?;
        std::thread::sleep(time);
        let recording = perf.finish()?;
        report.figure("  perf record --call-graph dwarf,16384", recording.lost()? as f64, "", None);
    }
    Ok(())
}
