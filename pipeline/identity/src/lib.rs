//! Who a process is, under which id Sentry files it, and which stretch of its time an observation belongs to.
//!
//! [`Rules`] are what the configuration says about this (`service.identity`). Everything that needs the profiler id
//! or the cell of an observation computes them from one `Rules`. So the ids of what is sampled, linked and cut by
//! process are the same in every processor and in every replica:
//!
//! ```
//! use profbridge_identity::{Processes, RequestId, Rules};
//! use profbridge_model::Builder;
//!
//! let mut builder = Builder::new();
//! builder.resource(&[("container.id", "c0ffee".into()), ("process.pid", 4711.into())]);
//! builder.sample(None, None, None, &[1_767_225_600_000_000_000], &[]);
//! let batch = builder.finish()?;
//!
//! let rules = Rules::default();
//! let mut processes = Processes::new(&batch, &rules, RequestId::default());
//! let found = processes.of(0, None).map(|at| processes.get(at).identity);
//! let window = found.map(|identity| rules.window(identity, rules.cell(identity, 1_767_225_600_000_000_000)));
//! let id = window.map(|window| window.profiler_id.to_string());
//! assert_eq!(id.as_deref(), Some("88dc659ad2904accbd2d5975b2b756fd"));
//! # Ok::<(), profbridge_model::dictionary::Invalid>(())
//! ```
//!
//! * [`Identity`]: the hash of what tells a process apart, and how good that is. `identity.rs` says what enters it.
//! * [`Processes`]: the processes of one request. What samples say about their process counts as its resource's.
//! * [`Cell`]: the stretches of event time that windows are made of.
//! * [`Rules::names`]: by what those who see a process from different sides find each other.
//! * [`ProcessClaims`]: whether two who see a process from different sides speak of the same.
//! * [`sampling`]: decisions that all replicas make alike.
//! * [`skew`]: observations whose time is far from their arrival.
//!
//! Pure: neither clock nor network nor disk; what arrives when is handed in.

mod cell;
mod claims;
mod identity;
mod moves;
mod names;
mod processes;
mod rules;
pub mod sampling;
pub mod skew;

pub use self::cell::{Cell, leading, timestamp};
pub use self::claims::ProcessClaims;
pub use self::identity::{Identity, Kind, RequestId};
pub use self::names::profiler_name;
pub use self::processes::{Process, Processes};
pub use self::rules::{MAX_WINDOW, Rules};
