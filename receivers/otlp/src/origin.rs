//! Adds missing attributes to resources, and detects peers whose profiles cannot be attributed to a host.
//!
//! A loopback peer is on this machine, so its resources get this host's name unless they name a host. `resource.insert`
//! applies to all senders. If a peer forwards the profiles of several machines, neither distinguishes those machines,
//! so the peer's batches are marked ([`Profiles::relayed`]), and profiles without a host are not merged.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use profbridge_model::dictionary::Invalid;
use profbridge_model::{Attribute, Dictionary, Insertion, Profiles, ResourceProfiles, Spans, Value};
use profbridge_wire::otlp::traces::read::resource_attributes;

use crate::config::ResourceSettings;
use crate::host::ThisHost;
use crate::known_peers::{HostNames, KnownPeers, PeerReport, ProcessTrait, TraitSighting};

/// The memory in bytes for an added attribute, apart from its texts.
const ADDED_ATTRIBUTE_BYTES: usize = 64;

/// The minimum time between two warnings that profiles are not merged.
const WARNING: Duration = Duration::from_secs(60);

/// Knowledge about a receiver's peers, and the attributes to add to their resources.
#[derive(Debug)]
pub(crate) struct HostAttribution {
    /// The receiver's id, for the log.
    receiver: String,
    insert: Vec<(String, String)>,
    /// This host, if its name is to be added.
    host: Option<ThisHost>,
    state: Mutex<OriginState>,
}

#[derive(Debug, Default)]
struct OriginState {
    known_peers: KnownPeers,
    warned: Option<Instant>,
    /// The number of observations that were not merged since the last warning.
    alone: u64,
}

/// How a batch has to be changed.
#[derive(Debug, Default)]
pub(crate) struct BatchFindings {
    insertions: Vec<Insertion>,
    relayed: bool,
    /// A line for the log, if any.
    pub(crate) warning: Option<String>,
}

impl BatchFindings {
    /// The maximum memory for applying the findings, in bytes: a resource's attributes are copied once.
    pub(crate) fn memory(&self, profiles: &Profiles) -> usize {
        let touched = self.insertions.chunk_by(|one, other| one.resource == other.resource);
        let resource = |at: u32| profiles.resources().get(at as usize).map_or(0, |of| of.resource.attributes.len());
        let attributes: usize = touched.map(|of_one| of_one.len() + resource(of_one[0].resource)).sum();
        attributes * size_of::<Attribute>()
    }
}

/// The attributes that identify a process. If several have the same key, the first one is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ProcessAttributes<'a> {
    host: HostNames<'a>,
    container: bool,
    instance: bool,
    pid: Option<i64>,
    executable: Option<&'a str>,
    service: Option<&'a str>,
    pod_and_container: [Option<&'a str>; 2],
}

/// An environment variable with the process's service name, as the eBPF profiler reports it.
const SERVICE_VARIABLE: &str = "process.environment_variable.OTEL_SERVICE_NAME";

impl<'a> ProcessAttributes<'a> {
    fn of(dictionary: &'a Dictionary, attributes: impl Iterator<Item = &'a Attribute>) -> Self {
        let mut identity = Self::default();
        let (mut path, mut name, mut variable) = (None, None, None);
        for attribute in attributes {
            let text = match attribute.value {
                Value::String(id) => Some(dictionary.string(id)).filter(|text| !text.is_empty()),
                _ => None,
            };
            match dictionary.string(attribute.key) {
                "host.id" => identity.host.id = identity.host.id.or(text),
                "host.name" => identity.host.name = identity.host.name.or(text),
                "k8s.node.name" => identity.host.node = identity.host.node.or(text),
                "k8s.pod.uid" => identity.pod_and_container[0] = identity.pod_and_container[0].or(text),
                "k8s.container.name" => identity.pod_and_container[1] = identity.pod_and_container[1].or(text),
                "service.name" => identity.service = identity.service.or(text),
                SERVICE_VARIABLE => variable = variable.or(text),
                "container.id" => identity.container |= text.is_some(),
                "service.instance.id" => identity.instance |= text.is_some(),
                "process.executable.path" => path = path.or(text),
                "process.executable.name" => name = name.or(text),
                "process.pid" => {
                    identity.pid = identity.pid.or(match attribute.value {
                        Value::Int(pid) => Some(pid),
                        _ => text.and_then(|text| text.parse().ok()),
                    });
                }
                _ => {}
            }
        }
        identity.executable = path.or(name);
        // SDKs without a configured name use this placeholder (opentelemetry semantic conventions, `service.name`).
        identity.service = identity.service.filter(|name| !name.starts_with("unknown_service")).or(variable);
        identity
    }

    /// Fills fields that are missing here from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            host: HostNames {
                id: self.host.id.or(other.host.id),
                name: self.host.name.or(other.host.name),
                node: self.host.node.or(other.host.node),
            },
            container: self.container || other.container,
            instance: self.instance || other.instance,
            pid: self.pid.or(other.pid),
            executable: self.executable.or(other.executable),
            service: self.service.or(other.service),
            pod_and_container: [0, 1].map(|at| self.pod_and_container[at].or(other.pod_and_container[at])),
        }
    }

    /// Whether the attributes identify a process, see the processor `chunk`.
    fn identifies(&self) -> bool {
        self.instance || (self.pid.is_some() && (self.container || self.host.is_named()))
    }
}

impl HostAttribution {
    pub(crate) fn new(receiver: String, settings: ResourceSettings, host: ThisHost) -> Self {
        let host = settings.local_host.then_some(host);
        Self { receiver, insert: settings.insert, host, state: Mutex::default() }
    }

    /// This host, if the peer is on it and the peer's profiles get the host's name.
    fn local(&self, peer: IpAddr) -> Option<&ThisHost> {
        self.host.as_ref().filter(|_| peer.is_loopback())
    }

    /// Examines a batch of a peer. The peer's address must be canonical.
    pub(crate) fn examine_batch(&self, profiles: &Profiles, peer: IpAddr, now: Instant) -> BatchFindings {
        let local = self.local(peer);
        let this = local.map(|host| HostNames { id: host.id.as_deref(), name: host.name.as_deref(), node: None });
        let inserted: ProcessAttributes<'_> = self.inserted();
        let dictionary = profiles.dictionary();
        // If no sample has such an attribute, all of them are at the resource.
        let on_samples =
            ProcessAttributes::of(dictionary, dictionary.tables().attributes.iter()) != ProcessAttributes::default();
        let (mut report, mut unidentified, mut insertions) = (PeerReport::default(), 0, Vec::new());
        // The indexes of resources that name no host, neither in their own attributes nor in those of their samples.
        let mut nameless = Vec::new();
        for (at, resource) in profiles.resources().iter().enumerate() {
            let own = &resource.resource.attributes;
            for (attribute, (key, _)) in self.insert.iter().enumerate() {
                if !own.iter().any(|own| dictionary.string(own.key) == key) {
                    insertions.push(Insertion { resource: at as u32, attribute: attribute as u32 });
                }
            }
            let mut named = inserted.host.is_named();
            let on_resource = ProcessAttributes::of(dictionary, own.iter());
            let known = !on_samples && on_resource.or(inserted).identifies();
            for (on_sample, times, observations) in sample_groups(profiles, resource, on_samples, known) {
                let identity = on_sample.or(on_resource);
                if identity.host.is_named() {
                    named = true;
                    if report.hosts.last() != Some(&identity.host) {
                        report.hosts.push(identity.host);
                    }
                }
                let identity = identity.or(inserted);
                if identity.identifies() {
                    continue;
                }
                unidentified += observations;
                let Some(pid) = identity.pid else { continue };
                let traits =
                    [(ProcessTrait::Executable, identity.executable), (ProcessTrait::Service, identity.service)];
                let seen = traits.into_iter().filter_map(|(of, value)| Some((of, value?)));
                report.sightings.extend(seen.map(|(of, value)| TraitSighting {
                    pid,
                    pod_and_container: identity.pod_and_container,
                    of,
                    value,
                    times,
                }));
            }
            if !named && local.is_some() {
                nameless.push(at as u32);
            }
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let why = state.known_peers.record_report(peer, this, &report, now);
        let relayed = why.is_some();
        let warning = why.filter(|_| unidentified > 0).and_then(|why| {
            state.alone += unidentified;
            let due = state.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARNING);
            due.then(|| {
                state.warned = Some(now);
                self.warning(peer, &why, std::mem::take(&mut state.alone))
            })
        });
        drop(state);
        if !relayed && let Some(host) = local {
            let first = self.insert.len() as u32;
            let names = u32::from(host.id.is_some()) + u32::from(host.name.is_some());
            let of_host =
                |&resource: &u32| (first..first + names).map(move |attribute| Insertion { resource, attribute });
            insertions.extend(nameless.iter().flat_map(of_host));
            insertions.sort_unstable_by_key(|insertion| (insertion.resource, insertion.attribute));
        }
        BatchFindings { insertions, relayed, warning }
    }

    /// Applies the findings. A batch that gets no attributes remains the received request.
    ///
    /// # Errors
    ///
    /// The batch would exceed 4 GiB.
    pub(crate) fn apply_findings(&self, profiles: Profiles, findings: &BatchFindings) -> Result<Profiles, Invalid> {
        let inserted = self.insert.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let attributes: Vec<(&str, &str)> = inserted.chain(Self::host_names(self.host.as_ref())).collect();
        let mut profiles = profiles.insert(&attributes, &findings.insertions)?;
        profiles.relayed = findings.relayed;
        Ok(profiles)
    }

    /// Adds missing attributes to the resources of spans, as to those of profiles. Returns the memory for it, in bytes.
    ///
    /// Spans are not merged by their resources, so they provide only one kind of information about the peer: the hosts
    /// that they name.
    pub(crate) fn complete_spans(&self, spans: &mut Spans, peer: IpAddr, now: Instant) -> usize {
        let local = self.local(peer);
        if self.insert.is_empty() && local.is_none() {
            return 0;
        }
        let (mut report, mut missing) = (PeerReport::default(), Vec::new());
        for (at, resource) in spans.resources().iter().enumerate() {
            let mut host = HostNames::default();
            let mut has = vec![false; self.insert.len()];
            for (key, value) in resource_attributes(spans, resource) {
                let text = value.text().filter(|text| !text.is_empty());
                match key {
                    "host.id" => host.id = host.id.or(text),
                    "host.name" => host.name = host.name.or(text),
                    "k8s.node.name" => host.node = host.node.or(text),
                    _ => {}
                }
                for (has, _) in has.iter_mut().zip(&self.insert).filter(|(_, (inserted, _))| inserted == key) {
                    *has = true;
                }
            }
            let lacks: Vec<usize> = (0..has.len()).filter(|of| !has[*of]).collect();
            let named = host.is_named() || self.inserted().host.is_named();
            if host.is_named() {
                report.hosts.push(host);
            }
            missing.push((at, lacks, !named));
        }
        let this = local.map(|host| HostNames { id: host.id.as_deref(), name: host.name.as_deref(), node: None });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let relayed = state.known_peers.record_report(peer, this, &report, now).is_some();
        drop(state);
        let names = Self::host_names(local.filter(|_| !relayed));
        let mut memory = 0;
        for (at, lacks, nameless) in missing {
            let inserted = lacks.into_iter().map(|of| (self.insert[of].0.as_str(), self.insert[of].1.as_str()));
            for (key, value) in inserted.chain(names.iter().copied().filter(|_| nameless)) {
                memory += key.len() + value.len() + ADDED_ATTRIBUTE_BYTES;
                spans.add_to_resource(at, key.into(), value.into());
            }
        }
        memory
    }

    /// The attributes with this host's names.
    fn host_names(host: Option<&ThisHost>) -> Vec<(&'static str, &str)> {
        let names = [
            ("host.id", host.and_then(|host| host.id.as_deref())),
            ("host.name", host.and_then(|host| host.name.as_deref())),
        ];
        names.into_iter().filter_map(|(key, name)| Some((key, name?))).collect()
    }

    /// The identifying attributes in `resource.insert`.
    fn inserted(&self) -> ProcessAttributes<'_> {
        let find = |key: &str| self.insert.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        ProcessAttributes {
            host: HostNames { id: find("host.id"), name: find("host.name"), node: find("k8s.node.name") },
            container: find("container.id").is_some(),
            instance: find("service.instance.id").is_some(),
            ..ProcessAttributes::default()
        }
    }

    fn warning(&self, peer: IpAddr, why: &str, alone: u64) -> String {
        let receiver = &self.receiver;
        format!(
            "{receiver}: {peer} passes on the profiles of several machines ({why}), and {alone} observations do not say of \
             which machine they are. They are shown process by process and request by request, since those of different \
             machines would be mixed up otherwise. Set host.id where they come from: `resource: {{insert: {{host.id: ...}}}}` \
             of a profbridge on each machine, or `resourcedetection` of a Collector there"
        )
    }
}

/// A group of a resource's samples with the same identifying attributes: the attributes, the time range, and the number
/// of observations.
type SampleGroup<'a> = (ProcessAttributes<'a>, Option<(u64, u64)>, u64);

/// The groups of a resource: one, or one per list of attributes of its samples. The time range is only determined if
/// the process is not `known`.
fn sample_groups<'a>(
    profiles: &'a Profiles,
    resource: &ResourceProfiles,
    on_samples: bool,
    known: bool,
) -> Vec<SampleGroup<'a>> {
    if known {
        return vec![(ProcessAttributes::default(), None, 0)];
    }
    let dictionary = profiles.dictionary();
    let (mut sample_groups, mut seen): (Vec<SampleGroup<'a>>, HashMap<_, usize>) = (Vec::new(), HashMap::new());
    let mut last = None;
    for sample in resource.scopes.iter().flat_map(|scope| &scope.profiles).flat_map(|profile| profiles.samples(profile))
    {
        let set = sample.attributes.filter(|_| on_samples);
        let at = match last {
            Some((same, at)) if same == set => at,
            _ => *seen.entry(set).or_insert_with(|| {
                sample_groups.push((ProcessAttributes::of(dictionary, dictionary.attributes(set)), None, 0));
                sample_groups.len() - 1
            }),
        };
        last = Some((set, at));
        let (_, times, observations) = &mut sample_groups[at];
        *observations += sample.observations();
        for time in sample.timestamps() {
            let (first, last) = times.get_or_insert((time, time));
            (*first, *last) = ((*first).min(time), (*last).max(time));
        }
    }
    sample_groups
}

#[cfg(test)]
mod tests;
