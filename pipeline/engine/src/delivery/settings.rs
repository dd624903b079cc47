//! How an exporter's requests are delivered.

use std::time::Duration;

use super::queue_config::QueueConfig;
use super::retry_config::RetryConfig;

/// How an exporter's requests are delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliverySettings {
    /// `sending_queue`: how much may wait.
    pub queue: QueueConfig,
    /// `retry_on_failure`: when to retry.
    pub retry: RetryConfig,
    /// `timeout`: how long one attempt may take.
    pub timeout: Duration,
}
