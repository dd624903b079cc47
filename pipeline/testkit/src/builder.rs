//! Builds small requests with little code.
//!
//! A request is built from the outside in: [`RequestBuilder::resource`] (or [`RequestBuilder::process`]) opens a
//! resource, [`RequestBuilder::on_cpu`] and its siblings open a profile in it, [`RequestBuilder::sample`] adds samples
//! to the profile. [`RequestBuilder::attr`] and [`RequestBuilder::link`] extend the last element added. All tables are
//! interned.
//!
//! ```
//! use profbridge_testkit::{Frame, RequestBuilder, ms};
//!
//! let request = RequestBuilder::new()
//!     .process("checkout", 42) // service.name, process.pid, container.id
//!     .on_cpu(20) // samples/count, timestamps only, 20 Hz
//!     .sample(&["leaf", "mid", "root"], 7, &ms([0, 50, 100]))
//!     .sample(&["cpython!handle@/app/views.py:12", "cpython!main@/app/main.py:3"], 8, &ms([10]))
//!     .link([1; 16], [2; 8]) // of the last sample
//!     .resource()
//!     .attr("service.name", "cart")
//!     .off_cpu()
//!     .blocked(&[Frame::from("native!libc.so.6+0x91000")], 9, &[(ms([5])[0], 30_000_000)])
//!     .attr("process.pid", 43) // of the last sample
//!     .build();
//! assert_eq!(request.resource_profiles.len(), 2);
//! ```

use opentelemetry_proto::tonic::{
    common::v1::{InstrumentationScope, KeyValue},
    profiles::v1development::{Profile, ResourceProfiles, Sample, ScopeProfiles},
    resource::v1::Resource,
};
use prost::Message;

use crate::{
    ExportProfilesServiceRequest,
    dictionary::{Dictionary, Value},
};

mod frame;

pub use frame::{FRAME_TYPES, Frame};

/// The start of the builders' profiles: 2025-10-09T08:53:20Z, in nanoseconds since the epoch.
pub const T0: u64 = 1_760_000_000_000_000_000;

/// Converts milliseconds after [`T0`] to nanoseconds since the epoch.
pub fn ms<const N: usize>(offsets: [u64; N]) -> [u64; N] {
    offsets.map(|offset| T0 + offset * 1_000_000)
}

/// The element that [`RequestBuilder::attr`] extends.
#[derive(Clone, Copy, Debug)]
enum Last {
    Resource,
    Profile,
    Sample,
}

/// Builds a request; the module's documentation has an example.
#[derive(Clone, Debug)]
pub struct RequestBuilder {
    dictionary: Dictionary,
    resources: Vec<ResourceProfiles>,
    last: Last,
}

impl Default for RequestBuilder {
    fn default() -> Self {
        Self { dictionary: Dictionary::new(), resources: Vec::new(), last: Last::Resource }
    }
}

impl RequestBuilder {
    /// A request without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a resource without attributes.
    pub fn resource(mut self) -> Self {
        let scope = InstrumentationScope { name: "go.opentelemetry.io/ebpf-profiler".to_owned(), ..Default::default() };
        self.resources.push(ResourceProfiles {
            resource: Some(Resource::default()),
            scope_profiles: vec![ScopeProfiles { scope: Some(scope), ..ScopeProfiles::default() }],
            schema_url: String::new(),
        });
        self.last = Last::Resource;
        self
    }

    /// Sets the scope of the open resource, which is the eBPF profiler's by default.
    pub fn scope(mut self, name: &str, version: &str) -> Self {
        let scope = InstrumentationScope { name: name.to_owned(), version: version.to_owned(), ..Default::default() };
        self.open_scope().scope = Some(scope);
        self
    }

    /// Opens the resource of a process with a complete identity: `service.name`, `process.pid`, and a `container.id`
    /// that only depends on the service name.
    pub fn process(self, service: &str, pid: i64) -> Self {
        let container: String = service.bytes().cycle().take(32).map(|byte| format!("{byte:02x}")).collect();
        self.resource().attr("service.name", service).attr("process.pid", pid).attr("container.id", container)
    }

    /// Opens a profile with this `sample_type` (type, unit), which starts at [`T0`] and lasts 5 s, without period and
    /// period type.
    pub fn profile(mut self, kind: &str, unit: &str) -> Self {
        let sample_type = Some(self.dictionary.value_type(kind, unit));
        let profile = Profile { sample_type, time_unix_nano: T0, duration_nano: 5_000_000_000, ..Profile::default() };
        self.open_scope().profiles.push(profile);
        self.last = Last::Profile;
        self
    }

    /// Opens the eBPF profiler's on-CPU profile: `samples`/`count`, period type `cpu`/`nanoseconds`.
    pub fn on_cpu(self, hertz: i64) -> Self {
        self.profile("samples", "count").period("cpu", "nanoseconds", 1_000_000_000 / hertz.max(1))
    }

    /// Opens the eBPF profiler's off-CPU profile: `off_cpu`/`nanoseconds`, no period.
    pub fn off_cpu(self) -> Self {
        self.profile("off_cpu", "nanoseconds")
    }

    /// Sets the period of the last profile.
    pub fn period(mut self, kind: &str, unit: &str, period: i64) -> Self {
        let period_type = Some(self.dictionary.value_type(kind, unit));
        if let Some(profile) = self.last_profile() {
            profile.period_type = period_type;
            profile.period = period;
        }
        self
    }

    /// Sets start and duration (nanoseconds) of the last profile.
    pub fn range(mut self, start: u64, duration: u64) -> Self {
        if let Some(profile) = self.last_profile() {
            profile.time_unix_nano = start;
            profile.duration_nano = duration;
        }
        self
    }

    /// Changes the last profile in any other way (`profile_id`, `original_payload`, ...).
    pub fn with_profile(mut self, change: impl FnOnce(&mut Profile)) -> Self {
        if let Some(profile) = self.last_profile() {
            change(profile);
        }
        self
    }

    /// Adds a sample with timestamps only: `stack` is leaf first, `thread` becomes `thread.id`.
    ///
    /// Frames are [`Frame`]s or their text form, e.g. `"cpython!handle@/app/views.py:12"`.
    pub fn sample<F: Into<Frame> + Clone>(self, stack: &[F], thread: i64, timestamps: &[u64]) -> Self {
        self.raw_sample(stack, &[], timestamps).attr("thread.id", thread)
    }

    /// Adds a sample with pairs of timestamp and value.
    pub fn blocked<F: Into<Frame> + Clone>(self, stack: &[F], thread: i64, observations: &[(u64, i64)]) -> Self {
        let (timestamps, values): (Vec<u64>, Vec<i64>) = observations.iter().copied().unzip();
        self.raw_sample(stack, &values, &timestamps).attr("thread.id", thread)
    }

    /// Adds a sample with one value, without timestamps and attributes, as in pprof.
    pub fn value<F: Into<Frame> + Clone>(self, stack: &[F], value: i64) -> Self {
        self.raw_sample(stack, &[value], &[])
    }

    /// Adds a sample without attributes.
    pub fn raw_sample<F: Into<Frame> + Clone>(mut self, stack: &[F], values: &[i64], timestamps: &[u64]) -> Self {
        let locations = stack.iter().map(|frame| frame.clone().into().intern(&mut self.dictionary)).collect();
        let sample = Sample {
            stack_index: self.dictionary.stack(locations),
            values: values.to_vec(),
            timestamps_unix_nano: timestamps.to_vec(),
            ..Sample::default()
        };
        if let Some(profile) = self.last_profile() {
            profile.samples.push(sample);
            self.last = Last::Sample;
        }
        self
    }

    /// Sets `thread.name` of the last sample.
    pub fn thread_name(self, name: &str) -> Self {
        self.attr("thread.name", name)
    }

    /// Links the last sample to a span.
    pub fn link(mut self, trace: [u8; 16], span: [u8; 8]) -> Self {
        let link = self.dictionary.link(trace, span);
        if let Some(sample) = self.last_profile().and_then(|profile| profile.samples.last_mut()) {
            sample.link_index = link;
        }
        self
    }

    /// Adds an attribute to the last element added: the resource, the profile or the sample.
    pub fn attr(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if let Last::Resource = self.last {
            let attribute = KeyValue { key: key.to_owned(), value: Some(value.into()), key_strindex: 0 };
            self.open().resource.get_or_insert_default().attributes.push(attribute);
            return self;
        }
        let index = self.dictionary.attribute(key, value);
        let sample = matches!(self.last, Last::Sample);
        if let Some(profile) = self.last_profile() {
            match profile.samples.last_mut().filter(|_| sample) {
                Some(last) => last.attribute_indices.push(index),
                None => profile.attribute_indices.push(index),
            }
        }
        self
    }

    /// The finished request.
    pub fn build(self) -> ExportProfilesServiceRequest {
        ExportProfilesServiceRequest { resource_profiles: self.resources, dictionary: Some(self.dictionary.finish()) }
    }

    /// The finished request, encoded.
    pub fn encode(self) -> Vec<u8> {
        self.build().encode_to_vec()
    }

    /// The open resource; opens one if there is none.
    fn open(&mut self) -> &mut ResourceProfiles {
        if self.resources.is_empty() {
            *self = std::mem::take(self).resource();
        }
        let last = self.resources.len() - 1;
        &mut self.resources[last]
    }

    fn open_scope(&mut self) -> &mut ScopeProfiles {
        let resource = self.open();
        if resource.scope_profiles.is_empty() {
            resource.scope_profiles.push(ScopeProfiles::default());
        }
        let last = resource.scope_profiles.len() - 1;
        &mut resource.scope_profiles[last]
    }

    /// The last profile of the open resource. If there is none, the methods that extend it do nothing.
    fn last_profile(&mut self) -> Option<&mut Profile> {
        self.open_scope().profiles.last_mut()
    }
}
