//! Identifies processes: the process of an observation, its id in Sentry, and its range of event time.
//!
//! [`Rules`] are the configuration (`service.identity`). All code that needs the profiler id or the cell of an
//! observation computes them from one `Rules`. So sampling, linking and cutting by process use the same ids in every
//! processor and in every replica:
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
//! * [`Identity`]: the hash that identifies a process, and how reliable it is. `identity.rs` lists the attributes used.
//! * [`Processes`]: the processes of one request. Process attributes of a sample count as attributes of its resource.
//! * [`Cell`]: the ranges of event time that windows consist of.
//! * [`Rules::names`]: the names by which sources with different knowledge find the same process.
//! * [`ProcessClaims`]: whether two such sources describe the same process.
//! * [`sampling`]: decisions that are the same in all replicas.
//!
//! The crate is pure: it uses no clock, network or disk; arrival times are passed in.

mod cell;
mod claims;
mod identity;
mod moves;
mod names;
mod processes;
mod rules;
pub mod sampling;

pub use self::cell::{Cell, leading, timestamp};
pub use self::claims::ProcessClaims;
pub use self::identity::{Identity, IdentityKind, RequestId};
pub use self::names::profiler_name;
pub use self::processes::{IdentifiedProcess, Processes};
pub use self::rules::{MAX_WINDOW, Rules};
