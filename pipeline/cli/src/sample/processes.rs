//! The processes of a run, each with its time: a command that starts another one is not what does the work.

use super::shares::Side;

/// So many processes have their functions told apart: a run may start any number.
const MOST_WITH_FUNCTIONS: usize = 64;

/// The time of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessShare {
    /// Its name and its id.
    pub(crate) label: String,
    /// For how long its threads ran, in nanoseconds.
    pub(crate) running_nano: u64,
    /// For how long its threads were blocked, in nanoseconds.
    pub(crate) waiting_nano: u64,
    /// Where they ran; `None` where there are too many processes.
    pub(crate) running: Option<Side>,
}

/// All of them, in the order in which they were met.
#[derive(Debug, Default)]
pub(crate) struct ProcessShares(Vec<ProcessShare>);

impl ProcessShares {
    /// Where the running time of a process is added as well, by function.
    pub(crate) fn running(&mut self, label: &str) -> Option<&mut Side> {
        self.of(label).running.as_mut()
    }

    fn of(&mut self, label: &str) -> &mut ProcessShare {
        let at = self.0.iter().position(|share| share.label == label).unwrap_or_else(|| {
            let running = (self.0.len() < MOST_WITH_FUNCTIONS).then(Side::default);
            self.0.push(ProcessShare { label: label.to_owned(), running, ..ProcessShare::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Adds time of a process.
    pub(crate) fn add(&mut self, label: &str, running_nano: u64, waiting_nano: u64) {
        let share = self.of(label);
        share.running_nano = share.running_nano.saturating_add(running_nano);
        share.waiting_nano = share.waiting_nano.saturating_add(waiting_nano);
    }

    /// The one that ran longest comes first, and of those that did not run the one that waited longest.
    pub(crate) fn sorted(&self) -> Vec<&ProcessShare> {
        let mut shares: Vec<&ProcessShare> = self.0.iter().collect();
        shares.sort_by_key(|share| std::cmp::Reverse((share.running_nano, share.waiting_nano)));
        shares
    }

    /// What a graph of all of them is called: the one that did the work, and how many there are beside it.
    pub(crate) fn title(&self) -> Option<String> {
        let sorted = self.sorted();
        let first = &sorted.first()?.label;
        Some(match sorted.len() - 1 {
            0 => first.clone(),
            1 => format!("{first} and one more process"),
            more => format!("{first} and {more} more processes"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the process that ran is named first, however long another one waited for it.
    #[test]
    fn the_one_that_works() {
        let mut shares = ProcessShares::default();
        assert_eq!(shares.title(), None);
        shares.add("timeout (pid 7)", 1, 900);
        assert_eq!(shares.title().as_deref(), Some("timeout (pid 7)"));
        shares.add("work (pid 8)", 400, 1);
        shares.add("work (pid 8)", 400, 0);
        assert_eq!(shares.title().as_deref(), Some("work (pid 8) and one more process"));
        shares.add("idle (pid 9)", 0, 1);
        assert_eq!(shares.title().as_deref(), Some("work (pid 8) and 2 more processes"));
        let labels: Vec<&str> = shares.sorted().iter().map(|share| share.label.as_str()).collect();
        assert_eq!(labels, ["work (pid 8)", "timeout (pid 7)", "idle (pid 9)"]);
        assert_eq!((shares.sorted()[0].running_nano, shares.sorted()[0].waiting_nano), (800, 1));
    }
}
