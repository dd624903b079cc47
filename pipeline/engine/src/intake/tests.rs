//! Tests of waiting, refusing and withdrawing.

use super::*;
use crate::component::Retry;
use crate::fakes::batch;
use crate::testing::intake;

fn send(intake: &Intake, observations: u64) -> tokio::task::JoinHandle<Result<(), Rejected>> {
    let intake = intake.clone();
    let permit = intake.admit(100).unwrap();
    tokio::spawn(async move { intake.consume(batch(observations), permit).await })
}

/// Guarantees: a request that found room, but whose pipeline then waits for a full queue, is refused after a moment and
/// never processed: its sender retries it, so it would otherwise be duplicated.
#[tokio::test(start_paused = true)]
async fn waiting_request_is_withdrawn() {
    let (intake, mut consumer) = intake(1 << 20);
    let waiting = send(&intake, 5);
    tokio::task::yield_now().await;
    consumer.set_full(Some(Overflow::Refuse));
    let rejected = waiting.await.unwrap().unwrap_err();
    assert_eq!(rejected.reason, Reason::QueueFull);
    consumer.set_full(None);
    let next = send(&intake, 7);
    assert_eq!(consumer.take().await.unwrap().observations(), 7);
    next.await.unwrap().unwrap();
    assert_eq!((consumer.totals().inbound, consumer.memory_used()), (Quantities::observations(7), 0));
}

/// Guarantees: a request that finds no place in the pipeline's channel is likewise refused after a moment.
#[tokio::test(start_paused = true)]
async fn request_without_a_place_is_refused() {
    let (intake, mut consumer) = intake(1 << 20);
    // Four requests have a place, and the fifth waits for one.
    let waiting: Vec<_> = (1..=5).map(|observations| send(&intake, observations)).collect();
    tokio::task::yield_now().await;
    consumer.set_full(Some(Overflow::Refuse));
    for request in waiting {
        assert_eq!(request.await.unwrap().unwrap_err().reason, Reason::QueueFull);
    }
    consumer.set_full(None);
    let next = send(&intake, 7);
    assert_eq!(consumer.take().await.unwrap().observations(), 7);
    next.await.unwrap().unwrap();
    assert_eq!(consumer.memory_used(), 0);
}

/// Guarantees: with `block_on_overflow` a request that found room waits as long as necessary.
#[tokio::test(start_paused = true)]
async fn blocking_request_is_not_withdrawn() {
    let (intake, mut consumer) = intake(1 << 20);
    let waiting = send(&intake, 5);
    tokio::task::yield_now().await;
    consumer.set_full(Some(Overflow::Wait));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(consumer.take().await.unwrap().observations(), 5);
    waiting.await.unwrap().unwrap();
}

/// Guarantees: a request whose sender disconnects before a pipeline has started to process it is not processed.
#[tokio::test]
async fn disconnected_sender_withdraws_its_request() {
    let (intake, mut consumer) = intake(1 << 20);
    let waiting = send(&intake, 5);
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let next = send(&intake, 7);
    assert_eq!(consumer.take().await.unwrap().observations(), 7);
    next.await.unwrap().unwrap();
}

/// Guarantees: on the last call, requests that no pipeline has started to process are refused and never processed, and
/// so are later ones.
#[tokio::test]
async fn last_call_gives_back_waiting_requests() {
    let (intake, mut consumer) = intake(1 << 20);
    let waiting = send(&intake, 5);
    tokio::task::yield_now().await;
    consumer.last_call();
    assert_eq!(waiting.await.unwrap().unwrap_err().reason, Reason::Shutdown);
    assert_eq!(send(&intake, 7).await.unwrap().unwrap_err().reason, Reason::Shutdown);
    consumer.close();
    assert!(consumer.take().await.is_none());
    assert_eq!((consumer.totals().inbound, consumer.memory_used()), (Quantities::NONE, 0));
}

/// Guarantees: a request that may wait gets its memory as soon as enough is released, and one that can never fit is
/// refused at once.
#[tokio::test(start_paused = true)]
async fn waits_for_memory() {
    let (intake, _consumer) = intake(100);
    let start = Instant::now();
    let patient = intake.waiting_until(start + Duration::from_secs(9));
    let first = intake.admit(80).unwrap();
    let waits = tokio::spawn({
        let patient = patient.clone();
        async move { patient.admit_waiting(50).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waits.is_finished());
    drop(first);
    assert_eq!(waits.await.unwrap().unwrap().bytes(), 50);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert_eq!(patient.admit_waiting(101).await.unwrap_err().retry, Retry::Never);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

/// Guarantees: with `block_on_overflow` the deadline refuses no request, and requests that wait past it do not
/// busy-loop.
#[tokio::test(start_paused = true)]
async fn deadline_does_not_apply_to_blocking_queues() {
    let (intake, consumer) = intake(100);
    let patient = intake.waiting_until(Instant::now() + Duration::from_secs(1));
    consumer.set_full(Some(Overflow::Wait));
    let waits = tokio::spawn(async move { patient.room().await });
    // The paused clock advances only while all tasks are idle.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!waits.is_finished());
    consumer.set_full(None);
    waits.await.unwrap().unwrap();
}

/// Guarantees: a request that waits for memory or queue room is refused at its deadline, for the same reason as without
/// waiting; room that appears earlier is used.
#[tokio::test(start_paused = true)]
async fn waits_no_longer_than_the_deadline() {
    let (intake, consumer) = intake(100);
    let start = Instant::now();
    let patient = intake.waiting_until(start + Duration::from_secs(9));
    consumer.set_full(Some(Overflow::Refuse));
    let waits = tokio::spawn({
        let patient = patient.clone();
        async move { patient.room().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waits.is_finished());
    consumer.set_full(None);
    waits.await.unwrap().unwrap();

    consumer.set_full(Some(Overflow::Refuse));
    let _all = intake.admit(100).unwrap();
    let (room, memory) = tokio::join!(patient.room(), patient.admit_waiting(1));
    assert_eq!(room.unwrap_err().reason, Reason::QueueFull);
    assert_eq!(memory.unwrap_err().reason, Reason::MemoryLimit);
    assert_eq!(start.elapsed(), Duration::from_secs(9));
}
