use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::*;

/// A body that sends pieces of one size at an interval, then ends or breaks.
struct ScriptedBody {
    pieces: VecDeque<usize>,
    every: Duration,
    pause: Option<Pin<Box<Sleep>>>,
    announced: Option<u64>,
    breaks: bool,
    /// The number of pieces that were requested.
    polled: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

fn script(pieces: &[usize], every: Duration) -> ScriptedBody {
    let pieces = pieces.iter().copied().collect();
    ScriptedBody { pieces, every, pause: None, announced: None, breaks: false, polled: Default::default() }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let every = self.every;
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(every)));
        std::task::ready!(pause.as_mut().poll(cx));
        self.pause = None;
        self.polled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match self.pieces.pop_front() {
            Some(size) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![7; size]))))),
            None if self.breaks => Poll::Ready(Some(Err("connection reset".into()))),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.announced.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

const NOW: Duration = Duration::ZERO;

/// Guarantees: a body is read completely, in one piece or many, announced or not, empty or not.
#[tokio::test(start_paused = true)]
async fn a_body_comes_back_whole() {
    for pieces in [&[][..], &[0], &[5], &[0, 5, 0], &[5, 0, 6], &[1000; 30]] {
        let total: usize = pieces.iter().sum();
        for announced in [None, Some(total as u64)] {
            let mut body = script(pieces, NOW);
            body.announced = announced;
            // The announced length decreases while reading, as with real bodies, so it must not be counted twice.
            let limits = BodyLimits::new(total * 2);
            assert_eq!(read(body, limits).await.unwrap(), vec![7; total], "{pieces:?}");
        }
    }
}

/// Guarantees: a body in one piece is not copied.
#[tokio::test(start_paused = true)]
async fn one_piece_is_not_copied() {
    let data = Bytes::from(vec![1; 100]);
    let body = http_body_util::Full::new(data.clone());
    assert_eq!(read(body, BodyLimits::new(100)).await.unwrap().as_ptr(), data.as_ptr());
}

/// Guarantees: a body that announces more than the limit is refused before a byte is read.
#[tokio::test(start_paused = true)]
async fn an_announced_excess_is_refused_before_reading() {
    let mut body = script(&[1], NOW);
    body.announced = Some(101);
    let polled = std::sync::Arc::clone(&body.polled);
    let error = read(body, BodyLimits::new(100)).await.unwrap_err();
    assert!(matches!(error, BodyError::TooLarge { limit: 100 }));
    assert_eq!(polled.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// Guarantees: a body without an announced length is refused at the piece that exceeds the limit; a body of exactly the
/// limit is accepted.
#[tokio::test(start_paused = true)]
async fn an_excess_is_refused_while_reading() {
    assert_eq!(read(script(&[50, 50], NOW), BodyLimits::new(100)).await.unwrap().len(), 100);
    let body = script(&[50, 51, 1_000_000], NOW);
    let polled = std::sync::Arc::clone(&body.polled);
    let error = read(body, BodyLimits::new(100)).await.unwrap_err();
    assert!(matches!(error, BodyError::TooLarge { limit: 100 }));
    assert_eq!(polled.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// Guarantees: an announced length allocates at most 1 MiB before bytes arrive.
#[tokio::test(start_paused = true)]
async fn a_lying_length_does_not_allocate() {
    let mut body = script(&[10, 10], NOW);
    body.announced = Some(60 * 1024 * 1024);
    let bytes = read(body, BodyLimits::new(64 * 1024 * 1024)).await.unwrap();
    let vec = Vec::from(bytes);
    assert_eq!(vec.len(), 20);
    assert!(vec.capacity() <= 1 << 20, "{}", vec.capacity());
}

/// Guarantees: a stalled body fails after one progress interval.
#[tokio::test(start_paused = true)]
async fn a_stalled_body_times_out() {
    let started = Instant::now();
    let error = read(script(&[1; 10], Duration::from_secs(3600)), BodyLimits::new(100)).await.unwrap_err();
    assert!(matches!(error, BodyError::TimedOut { received: 0 }), "{error}");
    assert_eq!(started.elapsed().as_secs(), 10);
}

/// Guarantees: a byte now and then does not count as progress.
#[tokio::test(start_paused = true)]
async fn dripping_times_out() {
    let started = Instant::now();
    let error = read(script(&[100; 1000], Duration::from_secs(3)), BodyLimits::new(1 << 20)).await.unwrap_err();
    assert!(matches!(error, BodyError::TimedOut { received: 300 }), "{error}");
    assert_eq!(started.elapsed().as_secs(), 10);
}

/// Guarantees: a body with steady progress lasts beyond one interval, but not beyond the deadline.
#[tokio::test(start_paused = true)]
async fn steady_progress_passes_until_the_deadline() {
    let every = Duration::from_secs(1);
    let passed = read(script(&[500; 50], every), BodyLimits::new(1 << 20)).await.unwrap();
    assert_eq!(passed.len(), 25_000);
    let started = Instant::now();
    let error = read(script(&[500; 100], every), BodyLimits::new(1 << 20)).await.unwrap_err();
    assert!(matches!(error, BodyError::TimedOut { .. }), "{error}");
    assert_eq!(started.elapsed().as_secs(), 60);
}

/// Guarantees: a broken body results in an error with its cause, not in a normal end.
#[tokio::test(start_paused = true)]
async fn a_break_is_an_error() {
    let mut body = script(&[10], NOW);
    body.breaks = true;
    let error = read(body, BodyLimits::new(100)).await.unwrap_err();
    assert_eq!(error.to_string(), "the body broke off after 10 bytes: connection reset");
}

/// Guarantees: a guarded body ends after an error.
#[tokio::test(start_paused = true)]
async fn a_guarded_body_ends_after_an_error() {
    let mut body = Guarded::new(script(&[200, 1], NOW), BodyLimits::new(100));
    assert!(body.frame().await.unwrap().is_err());
    assert!(body.frame().await.is_none());
    assert!(body.is_end_stream());
}
