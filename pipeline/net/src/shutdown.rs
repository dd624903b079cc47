//! A shutdown as a value: one side triggers, any number of clones wait.
//!
//! Dropping the [`Trigger`] triggers too, so that an owner that returns early or panics cannot leave its tasks running.

use tokio::sync::watch;

/// The waiting side. Cheap to clone; every clone sees the same trigger.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stopped: watch::Receiver<bool>,
}

/// The triggering side. When used or dropped, it wakes everything that waits for it.
#[derive(Debug)]
pub struct Trigger {
    stop: watch::Sender<bool>,
}

impl Shutdown {
    /// A trigger and its waiting side.
    pub fn pair() -> (Trigger, Shutdown) {
        let (stop, stopped) = watch::channel(false);
        (Trigger { stop }, Shutdown { stopped })
    }

    /// Whether the trigger was used or dropped.
    pub fn is_triggered(&self) -> bool {
        *self.stopped.borrow() || self.stopped.has_changed().is_err()
    }

    /// Waits for the trigger. Returns at once if it was used before. Safe to cancel.
    pub async fn wait(&mut self) {
        // An error means that the trigger was dropped, which counts as triggered.
        drop(self.stopped.wait_for(|stopped| *stopped).await);
    }

    /// Like [`Shutdown::wait`], as a future that owns `self`.
    pub async fn triggered(mut self) {
        self.wait().await;
    }
}

impl Trigger {
    /// Wakes everything that waits for the trigger, now and later.
    pub fn trigger(&self) {
        self.stop.send_replace(true);
    }

    /// Another waiting side.
    pub fn subscribe(&self) -> Shutdown {
        Shutdown { stopped: self.stop.subscribe() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: every clone wakes, and a clone made after the trigger does not wait.
    #[tokio::test]
    async fn every_clone_wakes() {
        let (trigger, shutdown) = Shutdown::pair();
        let waiting = tokio::spawn(shutdown.clone().triggered());
        assert!(!shutdown.is_triggered());
        trigger.trigger();
        waiting.await.unwrap();
        assert!(shutdown.is_triggered());
        shutdown.clone().wait().await;
        trigger.subscribe().wait().await;
    }

    /// Guarantees: dropping an unused trigger wakes everything that waits for it.
    #[tokio::test]
    async fn dropping_the_trigger_triggers() {
        let (trigger, mut shutdown) = Shutdown::pair();
        drop(trigger);
        shutdown.wait().await;
        assert!(shutdown.is_triggered());
    }
}
