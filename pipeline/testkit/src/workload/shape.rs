//! The shapes of requests, and the recipe of each.

use std::{fmt, str::FromStr};

use super::names::WorkloadRuntime;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// 8 KB, like the "average" profile of OTEP 0239. It shows the cost per request.
    Tiny,
    /// One busy Go process: 10,000 observations in 5 s at 101 Hz.
    Avg,
    /// One busy Ruby process with 146 frames per stack: 10,000 observations in 5 s at 101 Hz.
    RubyDeep,
    /// Twenty processes of all runtimes on a large machine: 1.2 million observations in 60 s at 101 Hz.
    Large,
    /// Every stack is unique and every name is difficult for writers: see the module `adversarial`.
    Adversarial,
}

impl Shape {
    /// All shapes, smallest first.
    pub const ALL: [Self; 5] = [Self::Tiny, Self::Adversarial, Self::Avg, Self::RubyDeep, Self::Large];

    /// The shape's name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Avg => "avg",
            Self::RubyDeep => "ruby-deep",
            Self::Large => "large",
            Self::Adversarial => "adversarial",
        }
    }

    pub(super) fn recipe(self) -> Recipe {
        match self {
            Self::Tiny => Recipe {
                stacks: 24,
                depth: 14,
                locations: 66,
                functions: 57,
                files: 13,
                threads: 2,
                repeats: 0.45,
                skew: 0.9,
                hertz: 20,
                ..Recipe::AVG
            },
            Self::Avg => Recipe::AVG,
            Self::RubyDeep => Recipe {
                runtimes: &[WorkloadRuntime::Ruby],
                stacks: 4_000,
                depth: 146,
                locations: 6_000,
                functions: 4_000,
                files: 930,
                repeats: 0.42,
                skew: 0.9,
                elders: 1.6,
                spread: 0.2,
                roots: 2,
                ..Recipe::AVG
            },
            Self::Large => Recipe {
                runtimes: &[
                    WorkloadRuntime::Jvm,
                    WorkloadRuntime::Cxx,
                    WorkloadRuntime::Rust,
                    WorkloadRuntime::Go,
                    WorkloadRuntime::Python,
                    WorkloadRuntime::Jvm,
                    WorkloadRuntime::Node,
                    WorkloadRuntime::Ruby,
                    WorkloadRuntime::Php,
                    WorkloadRuntime::Dotnet,
                ],
                processes: 20,
                stacks: 6_000,
                depth: 42,
                locations: 10_000,
                functions: 4_000,
                files: 590,
                threads: 12,
                repeats: 0.27,
                skew: 0.8,
                window: 60_000_000_000,
                ..Recipe::AVG
            },
            Self::Adversarial => Recipe::AVG,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|shape| shape.name() == name);
        known.ok_or_else(|| format!("no shape is called `{name}`"))
    }
}

/// The recipe of a host. Counts are per process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    /// The runtimes, assigned to the processes in rotation.
    pub(super) runtimes: &'static [WorkloadRuntime],
    pub(super) processes: usize,
    pub(super) stacks: usize,
    /// The average number of frames per stack.
    pub(super) depth: usize,
    /// The maximum deviation of a stack's depth from the average, as a fraction.
    pub(super) spread: f64,
    pub(super) locations: usize,
    pub(super) functions: usize,
    pub(super) files: usize,
    pub(super) threads: usize,
    /// The probability that a thread's next observation has the same stack.
    pub(super) repeats: f64,
    /// The exponent of the stacks' popularity.
    pub(super) skew: f64,
    /// How strongly a new stack prefers the oldest stacks as its parent (1 for no preference).
    pub(super) elders: f64,
    /// The number of entry points of threads. Stacks with different entry points share no frames.
    pub(super) roots: usize,
    pub(super) hertz: u64,
    /// The length of a report in nanoseconds.
    pub(super) window: u64,
}

impl Recipe {
    const AVG: Self = Self {
        runtimes: &[WorkloadRuntime::Go],
        processes: 1,
        stacks: 1_000,
        depth: 31,
        locations: 1_500,
        functions: 1_200,
        files: 270,
        threads: 24,
        repeats: 0.34,
        skew: 0.9,
        elders: 2.0,
        roots: 2,
        spread: 0.4,
        hertz: 101,
        window: 5_000_000_000,
    };

    /// Nanoseconds between two observations of a running thread.
    pub(super) fn period(&self) -> u64 {
        1_000_000_000 / self.hertz
    }
}
