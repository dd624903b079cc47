//! Reads process and thread ids inside PID namespaces from `/proc`, on its own thread, which starts with the first
//! question.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::namespaces::{IdsAnswer, IdsQuestion, InnermostIds, Namespaces};

/// At most this many questions may wait; further ones are refused.
const MAX_QUESTIONS: usize = 1024;

/// Shorter names of containers and pods could match part of any path.
const LEAST_NAME: usize = 12;

/// Reads `/proc` in the background.
#[derive(Debug)]
pub struct Background {
    proc: PathBuf,
    questions: Option<SyncSender<IdsQuestion>>,
    failed: bool,
    answers: Arc<Mutex<Vec<IdsAnswer>>>,
}

impl Default for Background {
    fn default() -> Self {
        Self::of(PathBuf::from("/proc"))
    }
}

impl Background {
    /// Reads below this path instead of `/proc`. Starts no thread yet.
    pub fn of(proc: PathBuf) -> Self {
        Self { proc, questions: None, failed: false, answers: Arc::default() }
    }

    fn start(&mut self) -> std::io::Result<SyncSender<IdsQuestion>> {
        let (questions, inbox): (_, Receiver<IdsQuestion>) = sync_channel(MAX_QUESTIONS);
        let (proc, answers) = (self.proc.clone(), Arc::clone(&self.answers));
        // The thread ends once the processor, which owns the sender, is dropped.
        thread::Builder::new().name("read namespaces".to_owned()).spawn(move || {
            for question in inbox {
                let answer = IdsAnswer { process: question.process, ids: ids(&proc, &question) };
                lock(&answers).push(answer);
            }
        })?;
        Ok(questions)
    }
}

fn lock(answers: &Mutex<Vec<IdsAnswer>>) -> MutexGuard<'_, Vec<IdsAnswer>> {
    // A poisoned lock is harmless: the list is consistent after every statement that may panic.
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Namespaces for Background {
    fn ask(&mut self, question: IdsQuestion) -> Result<(), IdsQuestion> {
        if self.questions.is_none() && !self.failed {
            match self.start() {
                Ok(questions) => self.questions = Some(questions),
                Err(error) => {
                    self.failed = true;
                    tracing::error!("ids inside of containers are not read, since no thread could be started: {error}");
                }
            }
        }
        let process = question.process;
        match self.questions.as_ref().map(|questions| questions.try_send(question)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(question))) => return Err(question),
            // The reader thread is gone, so answer with nothing.
            Some(Err(TrySendError::Disconnected(_))) | None => {
                lock(&self.answers).push(IdsAnswer { process, ids: None });
            }
        }
        Ok(())
    }

    fn answers(&mut self) -> Vec<IdsAnswer> {
        std::mem::take(&mut *lock(&self.answers))
    }
}

/// The ids in its own namespace of the process in question, if it runs on this machine.
fn ids(proc: &Path, question: &IdsQuestion) -> Option<InnermostIds> {
    let folder = proc.join(question.pid.to_string());
    let cgroup = fs::read_to_string(folder.join("cgroup")).ok()?;
    question.containers.iter().find(|container| is_in(&cgroup, container))?;
    let pid = innermost_id(&folder.join("status"))?;
    let thread = |id: &u32| Some((*id, innermost_id(&folder.join(format!("task/{id}/status")))?));
    // If the process id is the same inside, there is no separate namespace.
    let threads = if pid == question.pid { Vec::new() } else { question.threads.iter().filter_map(thread).collect() };
    Some(InnermostIds { pid, threads })
}

/// Whether a cgroup belongs to a container or pod. In a systemd slice, `_` replaces the `-` of a pod's id (Kubernetes
/// `pkg/kubelet/cm/cgroup_manager_linux.go`, `escapeSystemdCgroupName`).
fn is_in(cgroup: &str, container: &str) -> bool {
    container.len() >= LEAST_NAME && (cgroup.contains(container) || cgroup.contains(&container.replace('-', "_")))
}

/// The last id in `NSpid`, which is that of the innermost namespace.
fn innermost_id(status: &Path) -> Option<u32> {
    let status = fs::read_to_string(status).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const CONTAINER: &str = "4f1cbd6e5a0b4f1cbd6e5a0b4f1cbd6e5a0b4f1cbd6e5a0b4f1cbd6e5a0b4f1c";
    const POD: &str = "8d3b1c9e-7f52-4b63-9a51-02f0f7a6c111";

    /// A fake `/proc` with one process.
    fn proc(name: &str, cgroup: &str, ids: &[(u32, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("profbridge-{name}-{}", std::process::id()));
        let folder = root.join("4711");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup"), cgroup).unwrap();
        for (id, of_namespaces) in ids {
            let task = folder.join(format!("task/{id}"));
            fs::create_dir_all(&task).unwrap();
            let status = format!("Name:\tshop\nNSpid:\t{of_namespaces}\nNSpgid:\t1\n");
            fs::write(task.join("status"), &status).unwrap();
            if *id == 4711 {
                fs::write(folder.join("status"), &status).unwrap();
            }
        }
        root
    }

    fn question(container: &str, threads: &[u32]) -> IdsQuestion {
        IdsQuestion { process: 1, pid: 4711, containers: vec![container.into()], threads: threads.to_vec() }
    }

    /// Guarantees: the ids of a process and its threads are those of the innermost namespace; a missing process, or one
    /// outside the container, has no ids.
    #[test]
    fn own_ids() {
        let v2 = format!("0::/system.slice/docker-{CONTAINER}.scope\n");
        let root = proc("own-ids", &v2, &[(4711, "4711\t30\t7"), (4712, "4712\t31\t8")]);
        let found = ids(&root, &question(CONTAINER, &[4711, 4712, 4713]));
        assert_eq!(found, Some(InnermostIds { pid: 7, threads: vec![(4711, 7), (4712, 8)] }));
        assert_eq!(ids(&root, &question(&CONTAINER.replace('4', "5"), &[])), None);
        assert_eq!(ids(&root, &question("4f1c", &[])), None, "too short to tell anything");
        assert_eq!(ids(&root, &IdsQuestion { pid: 1, ..question(CONTAINER, &[]) }), None);
        fs::remove_dir_all(root).unwrap();

        let slice = format!("0::/kubepods-pod{}.slice/cri-1.scope\n", POD.replace('-', "_"));
        let root = proc("same-ids", &slice, &[(4711, "4711")]);
        assert_eq!(ids(&root, &question(POD, &[4711])), Some(InnermostIds { pid: 4711, threads: vec![] }));
        fs::remove_dir_all(root).unwrap();
    }

    /// Guarantees: asking does not block, and every question is answered later.
    #[test]
    fn answers_come_later() {
        let root = proc("later", &format!("0::/{CONTAINER}"), &[(4711, "4711\t7")]);
        let mut background = Background::of(root.clone());
        assert_eq!(background.answers(), []);
        background.ask(question(CONTAINER, &[])).unwrap();
        background.ask(IdsQuestion { process: 2, ..question(POD, &[]) }).unwrap();
        let (mut answers, start) = (Vec::new(), Instant::now());
        while answers.len() < 2 && start.elapsed() < Duration::from_secs(120) {
            answers.extend(background.answers());
            thread::yield_now();
        }
        let own = InnermostIds { pid: 7, threads: vec![] };
        assert_eq!(answers, [IdsAnswer { process: 1, ids: Some(own) }, IdsAnswer { process: 2, ids: None }]);
        fs::remove_dir_all(root).unwrap();
    }

    /// Guarantees: if the queue is full, a question is returned unanswered and accepted once there is room again. Every
    /// accepted question is answered.
    #[test]
    fn a_full_queue_takes_nothing() {
        let mut background = Background::of(PathBuf::from("/nowhere"));
        let answers = Arc::clone(&background.answers);
        // Holding the lock blocks the reader thread at its first answer.
        let stopped = lock(&answers);
        let mut taken = 0;
        let refused = loop {
            match background.ask(IdsQuestion { process: taken, ..question(CONTAINER, &[4712]) }) {
                Ok(()) => taken += 1,
                Err(refused) => break refused,
            }
            assert!(taken <= MAX_QUESTIONS as u128 + 1, "{taken}");
        };
        assert_eq!(refused, IdsQuestion { process: taken, ..question(CONTAINER, &[4712]) });
        drop(stopped);
        let (mut count, start) = (0, Instant::now());
        let mut is_asked = false;
        while count <= taken && start.elapsed() < Duration::from_secs(120) {
            is_asked = is_asked || background.ask(refused.clone()).is_ok();
            count += background.answers().len() as u128;
            thread::yield_now();
        }
        assert_eq!((count, is_asked), (taken + 1, true));
    }
}
