//! Ids inside of containers: which are asked for, and what becomes of the answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use profbridge_identity::Side;
use profbridge_model::{Attribute, Dictionary, Value};

use super::{Index, Process, ThreadSeen};
use crate::namespaces::{Answer, OwnIds, Question};

/// A process that may have a PID namespace of its own.
#[derive(Debug)]
pub(super) struct Contained {
    pid: u32,
    containers: Vec<Box<str>>,
    /// Whether it was asked about.
    asked: bool,
}

impl Contained {
    /// What can be asked about a process with these attributes; `None` where nothing need be.
    pub(super) fn of(side: &Side, dictionary: &Dictionary, attributes: &[&Attribute]) -> Option<Box<Self>> {
        let pid = side.pid().filter(|_| side.may_have_another_pid())?;
        let is_name = |key: &str| matches!(key, "container.id" | "k8s.pod.uid");
        let names = attributes.iter().filter(|attribute| is_name(dictionary.string(attribute.key)));
        let texts = names.filter_map(|attribute| match attribute.value {
            Value::String(text) => Some(dictionary.string(text).into()),
            _ => None,
        });
        Some(Box::new(Self { pid: u32::try_from(pid).ok()?, containers: texts.collect(), asked: false }))
    }
}

/// What is to be asked, by process.
#[derive(Debug, Default)]
pub(super) struct Questions(HashMap<u128, Question>);

impl Questions {
    /// Asks about a process and a thread of it that was observed, unless that was done before.
    pub(super) fn add(
        &mut self,
        process: u128,
        contained: Option<&mut Box<Contained>>,
        id: &str,
        thread: &mut ThreadSeen,
    ) {
        let Some(contained) = contained else { return };
        let new_thread = id.parse::<u32>().ok().filter(|_| !std::mem::replace(&mut thread.asked, true));
        if std::mem::replace(&mut contained.asked, true) && new_thread.is_none() {
            return;
        }
        let question = match self.0.entry(process) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let Contained { pid, containers, .. } = &**contained;
                entry.insert(Question { process, pid: *pid, containers: containers.clone(), threads: Vec::new() })
            }
        };
        question.threads.extend(new_thread);
    }
}

impl Index {
    /// What is to be asked since the last call.
    pub(crate) fn questions(&mut self) -> impl Iterator<Item = Question> + use<> {
        std::mem::take(&mut self.questions).0.into_values()
    }

    /// Remembers what was found out.
    pub(crate) fn know(&mut self, answers: Vec<Answer>) {
        for Answer { process: identity, ids } in answers {
            let Some(process) = self.by_identity.get_mut(&identity) else { continue };
            let pid = process.side.pid();
            let Some(OwnIds { pid: own, threads }) = ids.filter(|ids| Some(ids.pid.into()) != pid) else {
                // Of another machine, or it has the machine's ids.
                process.contained = None;
                continue;
            };
            if !process.own_ids {
                process.own_ids = true;
                process.side = process.side.with_own_pid(own.into());
                for name in process.side.names() {
                    let of_name = self.by_name.entry(name).or_default();
                    if !of_name.contains(&identity) {
                        of_name.push(identity);
                    }
                }
            }
            for (id, own) in threads {
                if let Some(thread) = process.threads.get_mut(id.to_string().as_str()) {
                    thread.own_id = Some(own);
                }
            }
        }
    }
}

impl Process {
    /// The thread that calls itself so, and its id in profiles.
    pub(super) fn thread(&self, id: &str) -> Option<(&str, &ThreadSeen)> {
        if !self.own_ids {
            return self.threads.get_key_value(id).map(|(id, thread)| (&**id, thread));
        }
        let own: u32 = id.parse().ok()?;
        self.threads.iter().find(|(_, thread)| thread.own_id == Some(own)).map(|(id, thread)| (&**id, thread))
    }
}
