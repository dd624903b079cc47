//! Ids inside containers: which are asked for, and how answers are applied.

use hashbrown::hash_map::{Entry, HashMap};
use hashbrown::hash_set::HashSet;
use profbridge_identity::ProcessClaims;
use profbridge_model::{Attribute, Dictionary, Value};

use super::threads::{ObservedThread, ThreadId};
use super::{Index, ObservedProcess};
use crate::namespaces::{IdsAnswer, IdsQuestion, InnermostIds};
use crate::observed_times::ALLOCATION;

/// A process that may have its own PID namespace.
#[derive(Debug)]
pub(super) struct ContainerIds {
    pid: u32,
    containers: Vec<Box<str>>,
    /// Whether a question about it was asked.
    asked: bool,
    /// The threads in questions so far.
    asked_threads: HashSet<u32>,
    /// Maps thread ids in the process's own namespace to those in profiles; `None` until such a namespace is known to
    /// exist.
    threads: Option<HashMap<u32, u32>>,
}

impl ContainerIds {
    /// The state for a process with these attributes; `None` if its ids need no question.
    pub(super) fn of(claims: &ProcessClaims, dictionary: &Dictionary, attributes: &[&Attribute]) -> Option<Box<Self>> {
        let pid = claims.pid().filter(|_| claims.may_have_another_pid())?;
        let is_name = |key: &str| matches!(key, "container.id" | "k8s.pod.uid");
        let names = attributes.iter().filter(|attribute| is_name(dictionary.string(attribute.key)));
        let texts = names.filter_map(|attribute| match attribute.value {
            Value::String(text) => Some(dictionary.string(text).into()),
            _ => None,
        });
        Some(Box::new(Self {
            pid: u32::try_from(pid).ok()?,
            containers: texts.collect(),
            asked: false,
            asked_threads: HashSet::default(),
            threads: None,
        }))
    }

    /// Approximate memory use in bytes.
    fn bytes(&self) -> u64 {
        let names: usize = self.containers.iter().map(|name| name.len() + ALLOCATION + size_of::<Box<str>>()).sum();
        let threads = self.threads.as_ref().map_or(0, HashMap::allocation_size);
        (size_of::<Self>() + ALLOCATION + names + self.asked_threads.allocation_size() + threads) as u64
    }
}

/// The questions to ask, by process.
#[derive(Debug, Default)]
pub(super) struct PendingQuestions(HashMap<u128, IdsQuestion>);

impl PendingQuestions {
    /// Adds a question about a process and an observed thread of it, unless it was asked before.
    pub(super) fn add(&mut self, process: u128, contained: Option<&mut Box<ContainerIds>>, thread: &ThreadId) {
        let Some(contained) = contained else { return };
        let new_thread = thread.system().filter(|id| contained.asked_threads.insert(*id));
        if std::mem::replace(&mut contained.asked, true) && new_thread.is_none() {
            return;
        }
        let question = match self.0.entry(process) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let ContainerIds { pid, containers, .. } = &**contained;
                entry.insert(IdsQuestion { process, pid: *pid, containers: containers.clone(), threads: Vec::new() })
            }
        };
        question.threads.extend(new_thread);
    }
}

impl Index {
    /// Takes the questions since the last call.
    pub(crate) fn questions(&mut self) -> impl Iterator<Item = IdsQuestion> + use<> {
        std::mem::take(&mut self.questions).0.into_values()
    }

    /// Takes back a refused question: it is asked again when more profiles of the process arrive.
    pub(crate) fn ask_again(&mut self, question: &IdsQuestion) {
        let number = self.by_identity.get(&question.process);
        let process = number.and_then(|number| self.processes.get_mut(number));
        let Some(contained) = process.and_then(|process| process.contained.as_mut()) else { return };
        contained.asked = false;
        for thread in &question.threads {
            contained.asked_threads.remove(thread);
        }
    }

    /// Applies answers.
    pub(crate) fn apply_answers(&mut self, answers: Vec<IdsAnswer>) {
        for IdsAnswer { process: identity, ids } in answers {
            let number = self.by_identity.get(&identity).copied();
            let Some(process) = number.and_then(|number| self.processes.get_mut(&number)) else { continue };
            let (pid, before) = (process.claims.pid(), process.contained_bytes());
            let is_known = process.contained.as_ref().is_some_and(|contained| contained.threads.is_some());
            if ids.is_none() && is_known {
                // The process has ended since. Its spans may still arrive.
                continue;
            }
            process.has_same_ids |= ids.as_ref().is_some_and(|ids| Some(ids.pid.into()) == pid);
            let Some(InnermostIds { pid: own, threads }) = ids.filter(|ids| Some(ids.pid.into()) != pid) else {
                // The process is on another machine, or has the machine's ids.
                process.contained = None;
                self.bytes = self.bytes.saturating_sub(before);
                continue;
            };
            let Some(contained) = &mut process.contained else { continue };
            if contained.threads.is_none() {
                process.claims = process.claims.with_inner_pid(own.into());
                for name in process.claims.names() {
                    self.by_name.add(name, process.number);
                }
            }
            let known = contained.threads.get_or_insert_default();
            known.extend(threads.into_iter().map(|(id, own)| (own, id)));
            self.bytes = (self.bytes + process.contained_bytes()).saturating_sub(before);
        }
    }
}

impl ObservedProcess {
    /// The thread with this id in the process's own namespace.
    pub(super) fn thread(&self, id: &str) -> Option<(&ThreadId, &ObservedThread)> {
        let id = match self.contained.as_ref().and_then(|contained| contained.threads.as_ref()) {
            None => ThreadId::new(id),
            Some(threads) => ThreadId::of_system(*threads.get(&id.parse::<u32>().ok()?)?)?,
        };
        self.threads.get(&id)
    }

    /// Approximate memory of questions and answers about its ids inside a container, in bytes.
    pub(super) fn contained_bytes(&self) -> u64 {
        self.contained.as_ref().map_or(0, |contained| contained.bytes())
    }

    /// Drops the inner ids of threads that are forgotten.
    pub(super) fn forget_ids(&mut self) {
        let Self { contained: Some(contained), threads, .. } = self else { return };
        let known: HashSet<u32> = threads.iter().filter_map(|(id, _)| id.system()).collect();
        contained.asked_threads.retain(|id| known.contains(id));
        contained.asked_threads.shrink_to(known.len() * 2);
        if let Some(threads) = &mut contained.threads {
            threads.retain(|_, id| known.contains(id));
            threads.shrink_to(known.len() * 2);
        }
    }
}
