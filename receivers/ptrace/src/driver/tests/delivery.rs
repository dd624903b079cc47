//! Batches for the pipelines, and what happens when pipelines refuse them.

use super::*;

/// Guarantees: samples go to the pipelines at the interval, as one batch for each process, and a process without
/// samples sends none.
#[tokio::test(start_paused = true)]
async fn exports_at_the_interval() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(attached(2, 8)).await;
    rig.say(batch(1, 3)).await;
    rig.say(batch(1, 2)).await;
    let before = Instant::now();
    let profiles = rig.profiles().await;
    assert_eq!(profiles.observations(), 5);
    assert_eq!(before.elapsed().as_secs(), 5);
    let resource = &profiles.resources()[0].resource.attributes;
    assert_eq!(profiles.find(resource, "process.pid"), Some(&Value::Int(7)));
    rig.say(batch(2, 1)).await;
    assert_eq!(rig.profiles().await.observations(), 1);
    let consumer = rig.stop().await;
    assert_eq!(consumer.totals().outbound.total(), 6);
}

/// Guarantees: samples that wait at the shutdown, and those that the sampler sends while it stops, are still
/// delivered.
#[tokio::test(start_paused = true)]
async fn a_shutdown_loses_nothing() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(batch(1, 3)).await;
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    rig.trigger.trigger();
    assert!(matches!(rig.command().await, Command::Stop));
    rig.say(batch(1, 4)).await;
    rig.say(Event::Detached { process: ProcessId(1), why: Detached::Asked }).await;
    rig.sampler.notices.send(Notice::Ended(Ending::Stopped)).await.unwrap();
    assert_eq!(rig.profiles().await.observations(), 7);
    rig.driver.await.unwrap();
    rig.couriers.await.unwrap();
}

/// Guarantees: at an interval and at the shutdown any number of processes may be due at once; all their samples
/// arrive.
#[tokio::test(start_paused = true)]
async fn many_processes_are_due_at_once() {
    let mut rig = DriverHarness::start(WEB);
    rig.watched().await;
    for number in 0..100 {
        rig.say(attached(number, 1000 + number as u32)).await;
        rig.say(batch(number, 3)).await;
    }
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    for _ in 0..100 {
        assert_eq!(rig.profiles().await.observations(), 3);
    }
    for number in 0..100 {
        rig.say(batch(number, 2)).await;
    }
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    rig.trigger.trigger();
    assert!(matches!(rig.command().await, Command::Stop));
    rig.sampler.notices.send(Notice::Ended(Ending::Stopped)).await.unwrap();
    let mut pids = Vec::new();
    for _ in 0..100 {
        let profiles = rig.profiles().await;
        assert_eq!(profiles.observations(), 2);
        let Some(Value::Int(pid)) = profiles.find(&profiles.resources()[0].resource.attributes, "process.pid") else {
            panic!()
        };
        pids.push(*pid);
    }
    pids.dedup();
    assert_eq!(pids.len(), 100);
    rig.driver.await.unwrap();
    rig.couriers.await.unwrap();
    assert!(rig.consumer.totals().dropped.is_none());
}

/// Guarantees: a batch that a pipeline refuses temporarily is offered again and not lost; one that it refuses
/// permanently is counted under its reason.
#[tokio::test(start_paused = true)]
async fn refusals() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(batch(1, 3)).await;
    let rejected = |retry| Rejected {
        component: "chunk".to_owned(),
        reason: Reason::MemoryLimit,
        retry,
        message: "full".to_owned(),
    };
    for retry in [Retry::Later, Retry::After(Duration::from_secs(60))] {
        assert!(rig.consumer.reject(rejected(retry)).await.is_some());
    }
    assert_eq!(rig.profiles().await.observations(), 3);
    rig.say(batch(1, 2)).await;
    rig.consumer.reject(rejected(Retry::Never)).await;
    let consumer = rig.stop().await;
    let totals = consumer.totals();
    assert_eq!(
        (totals.dropped.get(Reason::MemoryLimit).total(), totals.inbound.total(), totals.outbound.total()),
        (2, 5, 3)
    );
}

/// Guarantees: a pipeline that never accepts anything delays the receiver by a limited time, and abandoned samples are
/// counted.
#[tokio::test(start_paused = true)]
async fn patience_ends() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.say(batch(1, 3)).await;
    let why = Rejected {
        component: "chunk".to_owned(),
        reason: Reason::MemoryLimit,
        retry: Retry::Later,
        message: "full".to_owned(),
    };
    let before = Instant::now();
    while rig.consumer.totals().dropped.is_none() {
        let offered = tokio::time::timeout(Duration::from_secs(10), rig.consumer.reject(why.clone())).await;
        assert!(offered.is_ok() || !rig.consumer.totals().dropped.is_none());
    }
    assert!(before.elapsed() < Duration::from_secs(60), "{:?}", before.elapsed());
    assert_eq!(rig.consumer.totals().dropped.get(Reason::MemoryLimit).total(), 3);
    rig.stop().await;
}

/// Guarantees: while the queue of an exporter is full, samples wait here, however long that lasts, and none is lost;
/// at the end of a shutdown, which has little time, samples that still wait are counted.
#[tokio::test(start_paused = true)]
async fn a_full_queue_is_waited_for() {
    let mut rig = DriverHarness::with_process(WEB).await;
    rig.consumer.set_full(Some(Overflow::Refuse));
    rig.say(batch(1, 3)).await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(rig.consumer.totals().dropped.is_none());
    rig.consumer.set_full(None);
    assert_eq!(rig.profiles().await.observations(), 3);

    rig.consumer.set_full(Some(Overflow::Refuse));
    rig.say(batch(1, 2)).await;
    let totals = rig.stop().await.totals();
    assert_eq!(
        (totals.dropped.get(Reason::QueueFull).total(), totals.inbound.total(), totals.outbound.total()),
        (2, 5, 3)
    );
}

/// Guarantees: the amount of samples waiting for the pipelines is limited; samples beyond the limit are counted, and
/// so are those that the sampler lost itself.
#[tokio::test(start_paused = true)]
async fn losses_are_counted() {
    let rig = DriverHarness::with_process(WEB).await;
    let lost = |lost_observations| {
        Event::Status(Status { process: ProcessId(1), lost_observations, ticks: 9, ..Status::default() })
    };
    rig.say(lost(2)).await;
    rig.say(lost(5)).await;
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    assert_eq!(rig.consumer.totals().dropped.get(Reason::QueueFull).total(), 5);
    assert!(rig.consumer.totals().notes.contains(&("sampler_ticks", 9)));
    // 32 MiB at 12 bytes or more per sample, and no pipeline accepts any.
    for _ in 0..400 {
        rig.say(batch(1, 20_000)).await;
    }
    rig.ask(1, None, ControlRequest::Status(Choice::default())).await;
    let dropped = rig.consumer.totals().dropped.get(Reason::QueueFull).total();
    assert!(dropped > 5 && dropped < 300 * 20_000, "{dropped}");
    drop(rig);
}
