//! Files for people to look at: flame graphs, and what speedscope and the Firefox Profiler open.

use std::io::Write;

use profbridge_codec::Report;
use profbridge_model::{Profiles, Reason};

use crate::Failure;
use crate::destination::{Destination, Format};
use crate::files::write_file;
use crate::views::flamegraph::FlameGraph;
use crate::views::reading::Given;
use crate::views::timeline::Timeline;
use crate::views::{firefox, speedscope};

/// Collects profiles, and writes them at the end.
pub(crate) struct View {
    /// Where they go.
    pub(crate) destination: Destination,
    of: Of,
}

/// What is kept of profiles.
enum Of {
    Sums(FlameGraph),
    Times(Timeline),
}

impl View {
    /// An output that writes nothing before its end.
    pub(crate) fn open(destination: Destination) -> Self {
        let of = match destination.format {
            Format::Speedscope | Format::Firefox => Of::Times(Timeline::default()),
            _ => Of::Sums(FlameGraph::default()),
        };
        Self { destination, of }
    }

    /// Takes a batch. `given` is what is known of it beside what it says.
    pub(crate) fn take(&mut self, batch: &Profiles, given: Option<Given<'_>>) {
        match &mut self.of {
            Of::Sums(graph) => graph.add(batch, given),
            Of::Times(timeline) => timeline.add(batch, given),
        }
    }

    /// Writes the file, called `title`, or else as the profiles say. Returns what it holds, in words, and its size in
    /// bytes; `None` where there is nothing to write.
    pub(crate) fn close(&mut self, title: Option<&str>, report: &mut Report) -> Result<Option<(String, u64)>, Failure> {
        let Self { destination: Destination { path, format, layout }, of } = self;
        let own = match of {
            Of::Sums(graph) => graph.title(),
            Of::Times(timeline) => timeline.title(),
        };
        let title = title.or(own.as_deref()).unwrap_or("profbridge");
        let counted = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        Ok(match of {
            Of::Sums(graph) => {
                report.losses.merge(graph.losses());
                report.not_shown.extend(graph.not_shown().in_words());
                let Some(stacks) = graph.stacks() else { return Ok(None) };
                let size = write_file(path, |file| graph.draw(title, *layout, file))?;
                Some((counted(stacks, "stack") + &graph.types(), size))
            }
            Of::Times(timeline) => {
                if *format == Format::Speedscope {
                    timeline.leave_out_negative();
                }
                report.losses.merge(timeline.losses());
                if timeline.is_empty() {
                    return Ok(None);
                }
                let size = if *format == Format::Firefox {
                    let made = firefox::File::new(timeline, title);
                    report.losses.add_observations(Reason::LimitExceeded, made.lost);
                    if made.taken == 0 {
                        return Ok(None);
                    }
                    write_file(path, |file| {
                        made.write(&mut *file)?;
                        file.write_all(b"\n")
                    })?
                } else {
                    write_file(path, |file| {
                        speedscope::write(timeline, title, &mut *file)?;
                        file.write_all(b"\n")
                    })?
                };
                Some((counted(timeline.tracks().len(), "track"), size))
            }
        })
    }
}
