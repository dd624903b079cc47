//! Reads and decompresses request bodies under the memory budget. All HTTP receivers use it.
//!
//! The budget is asked for the announced length first, so a request that cannot fit is refused before the client sends
//! it. That memory is released at once and taken again as bytes arrive, because a thousand peers could each announce 64
//! MiB and send nothing. The buffer doubles up to the announced length, so a body of that length leaves no unused
//! capacity.
//!
//! If the [`Intake`] waits for memory ([`Intake::waiting_until`]), reading waits too. The announced length is then
//! reserved for the whole read. Without an announced length, or when decompression and decoding find too little memory
//! ([`run_in_turn`]), only one request at a time may wait for more: several requests would deadlock, each waiting for
//! memory that the others hold.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;
use profbridge_net::BoxError;
use profbridge_net::body::{BodyError, BodyLimits, Guarded};
use profbridge_net::compression::{Coding, DecompressError, Decompressed, decompress_granted};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::Permit;
use crate::component::Rejected;
use crate::intake::{Intake, MAX_UNANNOUNCED};

/// Initial buffer capacity in bytes, unless a smaller length is announced.
const FIRST: usize = 64 * 1024;

/// How long the rest of a refused request is read and discarded, so that its sender gets to read the answer.
pub const LINGER: Duration = Duration::from_secs(5);

/// A body and the memory permit that covers it.
#[derive(Debug)]
pub struct ReceivedBody {
    /// The bytes.
    pub bytes: Bytes,
    /// The memory that the bytes occupy.
    pub permit: Permit,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The body is larger than the limit (by its announced or actual length), too slow, or cut short.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// There is not enough memory for the body.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// A buffer that takes memory from the budget before it grows.
#[derive(Debug)]
pub struct Buffer<'a> {
    intake: &'a Intake,
    permit: Permit,
    bytes: Vec<u8>,
    /// Expected length in bytes; more may arrive.
    announced: usize,
    /// The permission to grow large without an announced length, which one request at a time has.
    turn: Option<OwnedSemaphorePermit>,
}

impl<'a> Buffer<'a> {
    /// An empty buffer for a request that announces this length, if it announces one.
    ///
    /// # Errors
    ///
    /// There is not enough memory for that length.
    pub async fn new(intake: &'a Intake, announced: Option<usize>) -> Result<Self, Rejected> {
        let permit = intake.admit_waiting(0).await?;
        let mut buffer = Self { intake, permit, bytes: Vec::new(), announced: 0, turn: None };
        buffer.announce(announced.unwrap_or(0)).await?;
        Ok(buffer)
    }

    /// Sets the expected total length in bytes.
    ///
    /// # Errors
    ///
    /// There is not enough memory for that length.
    pub async fn announce(&mut self, announced: usize) -> Result<(), Rejected> {
        self.announced = announced;
        let held = self.permit.bytes();
        self.intake.grow_waiting(&mut self.permit, (announced as u64).saturating_sub(held)).await?;
        if !self.intake.may_wait() {
            self.permit.set(held);
        }
        Ok(())
    }

    /// Reserves memory and capacity for `more` bytes.
    async fn reserve(&mut self, more: usize) -> Result<(), Rejected> {
        let needed = self.bytes.len().saturating_add(more);
        let capacity = self.bytes.capacity();
        if needed <= capacity {
            return Ok(());
        }
        let mut target = capacity.saturating_mul(2).max(FIRST);
        if self.announced > 0 {
            target = target.min(self.announced);
        }
        let target = target.max(needed);
        if needed > self.announced && target as u64 > MAX_UNANNOUNCED && self.turn.is_none() && self.intake.may_wait() {
            self.turn = self.intake.wait_to_grow_large().await?;
        }
        let held = self.permit.bytes();
        self.intake.grow_waiting(&mut self.permit, (target as u64).saturating_sub(held)).await?;
        self.bytes.reserve_exact(target - self.bytes.len());
        Ok(())
    }

    /// Appends up to `most` bytes of `data`.
    ///
    /// # Errors
    ///
    /// There is not enough memory for these bytes.
    pub async fn append(&mut self, data: &mut Bytes, most: usize) -> Result<(), Rejected> {
        let taken = data.split_to(most.min(data.len()));
        self.reserve(taken.len()).await?;
        self.bytes.extend_from_slice(&taken);
        Ok(())
    }

    /// The number of buffered bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The buffered bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The buffered bytes, without unused capacity: a pipeline may keep them for long, and a small body without an
    /// announced length would waste most of its buffer.
    pub fn finish(mut self) -> ReceivedBody {
        self.bytes.shrink_to_fit();
        self.permit.set(self.bytes.capacity() as u64);
        ReceivedBody { bytes: self.bytes.into(), permit: self.permit }
    }
}

/// Reads a whole body.
///
/// # Errors
///
/// The body is larger than `limits` allow, too slow, or cut short, or there is not enough memory for it.
pub async fn read<B>(body: B, limits: BodyLimits, intake: &Intake) -> Result<ReceivedBody, ReadError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    // The size is checked before the budget, because a body that is too large must be refused permanently.
    let announced = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if announced.is_some_and(|length| length > limits.max_bytes) {
        return Err(BodyError::TooLarge { limit: limits.max_bytes }.into());
    }
    let mut buffer = Buffer::new(intake, announced).await?;
    fill(&mut buffer, &mut Guarded::new(body, limits), usize::MAX).await?;
    Ok(buffer.finish())
}

/// Reads until the body ends or the buffer has at least `enough` bytes. Returns whether the body has ended.
///
/// # Errors
///
/// The body is too large, too slow, or cut short, or there is not enough memory for it.
pub async fn fill<B>(buffer: &mut Buffer<'_>, body: &mut Guarded<B>, enough: usize) -> Result<bool, ReadError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    while buffer.len() < enough {
        let Some(frame) = body.frame().await else { return Ok(true) };
        if let Ok(mut data) = frame?.into_data() {
            buffer.append(&mut data, usize::MAX).await?;
        }
    }
    Ok(body.is_end_stream())
}

/// Reads and discards the rest of a request, for at most `time`, so that its sender gets to read the answer.
///
/// Over HTTP/1 the kernel resets a socket that is closed with unread bytes; over HTTP/2 some clients treat an early end
/// of the stream as a failure (curl 7.88). Clients retry a request whose connection broke.
pub async fn discard_rest(request: Request<Incoming>, time: Duration) {
    // A client that sent `Expect: 100-continue` has not started to send the body.
    if request.headers().contains_key(EXPECT) || request.body().is_end_stream() {
        return;
    }
    let limits = BodyLimits { max_bytes: usize::MAX, timeout: time, progress_interval: time / 5, min_progress: 1 };
    let mut body = Guarded::new(request.into_body(), limits);
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(mut data) = frame.into_data() {
            data.advance(data.remaining());
        }
    }
}

/// Limits how many requests are decompressed and decoded at the same time to one per core, so that they do not slow
/// each other down. Waiting requests hold only their received bytes.
pub fn slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)))
}

/// Runs `work` on a blocking thread once a slot is free. If `work` fails and freed much memory, that memory is returned
/// to the system. Returns `None` if `work` panicked; the panic is logged.
pub async fn run_in<T: Send + 'static, E: Send + 'static>(
    slots: &Arc<Semaphore>,
    intake: &Intake,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Option<Result<T, E>> {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    let intake = intake.clone();
    let task = tokio::task::spawn_blocking(move || {
        let result = work();
        if result.is_err() {
            intake.refused_large();
        }
        drop(slot);
        result
    });
    task.await.inspect_err(|error| tracing::error!(%error, "reading a request failed")).ok()
}

/// Runs `work` like [`run_in`]. If `work` fails for lack of memory and returns the job, and the intake waits for
/// memory, runs it again in its turn ([`Intake::in_turn`]). Before `work` returns the job, it has to release the memory
/// that it took.
pub async fn run_in_turn<J: Send + 'static, T: Send + 'static, E: Send + 'static>(
    slots: &Arc<Semaphore>,
    intake: &Intake,
    job: J,
    work: impl FnOnce(J, &Intake) -> Result<T, (E, Option<J>)> + Clone + Send + 'static,
) -> Option<Result<T, E>> {
    let (first, own) = (work.clone(), intake.clone());
    let (error, job) = match run_in(slots, intake, move || first(job, &own)).await? {
        Err((error, Some(job))) if intake.may_wait() => (error, job),
        result => return Some(result.map_err(|(error, _)| error)),
    };
    let Ok(in_turn) = intake.in_turn().await else { return Some(Err(error)) };
    // Does not take a slot, because the requests whose memory this one waits for may themselves wait for a slot.
    let alone = Arc::new(Semaphore::new(1));
    let result = run_in(&alone, intake, move || work(job, &in_turn)).await?;
    Some(result.map_err(|(error, _)| error))
}

/// Why a body was not decompressed.
#[derive(Debug)]
pub enum UnpackError {
    /// The output is too large, or the body is not valid in its coding.
    Decompress(DecompressError),
    /// There is not enough memory for the output.
    Rejected(Rejected),
}

/// Decompresses a body. The permit then also covers the output for as long as the output lives. Blocks the calling
/// thread while it works, and while it waits for memory as [`Intake::grow_blocking`] allows.
///
/// # Errors
///
/// The output is larger than `limit`, the body is not valid in `coding`, or there is not enough memory. The permit may
/// then cover more than the body.
pub fn unpack(
    bytes: Bytes,
    coding: Coding,
    limit: usize,
    intake: &Intake,
    permit: &mut Permit,
) -> Result<Decompressed, UnpackError> {
    let mut granted = 0;
    let mut rejected: Option<Rejected> = None;
    let mut grant = |wanted: usize| {
        let more = wanted.saturating_sub(granted) as u64;
        granted = granted.max(wanted);
        rejected = intake.grow_blocking(permit, more, wanted as u64).err();
        rejected.is_none()
    };
    let unpacked = decompress_granted(coding, bytes, limit, &mut grant);
    match (unpacked, rejected) {
        (Err(DecompressError::NotGranted { .. }), Some(rejected)) => Err(UnpackError::Rejected(rejected)),
        (unpacked, _) => unpacked.map_err(UnpackError::Decompress),
    }
}

/// Like [`unpack`], but releases the compressed body: the permit then covers only the output. A body without a coding
/// is returned unchanged.
///
/// # Errors
///
/// As [`unpack`].
pub fn unpack_instead(
    bytes: Bytes,
    coding: Coding,
    limit: usize,
    intake: &Intake,
    permit: &mut Permit,
) -> Result<Bytes, UnpackError> {
    if coding == Coding::Identity {
        return Ok(bytes);
    }
    let came = permit.bytes();
    let unpacked = unpack(bytes, coding, limit, intake, permit)?;
    permit.set(permit.bytes() - came);
    Ok(unpacked.plain)
}

/// Like [`unpack_instead`], but keeps the compressed body if it can be forwarded instead of the output: it has to be
/// smaller, and every decoder has to read it alike. The permit then covers both.
///
/// # Errors
///
/// As [`unpack`].
pub fn unpack_keeping(
    bytes: Bytes,
    coding: Coding,
    limit: usize,
    intake: &Intake,
    permit: &mut Permit,
) -> Result<(Bytes, Option<Bytes>), UnpackError> {
    if coding == Coding::Identity {
        return Ok((bytes, None));
    }
    let came = permit.bytes();
    let Decompressed { plain, in_one_piece } = unpack(bytes.clone(), coding, limit, intake, permit)?;
    if in_one_piece && bytes.len() < plain.len() {
        return Ok((plain, Some(bytes)));
    }
    permit.set(permit.bytes() - came);
    Ok((plain, None))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Write as _;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body_util::Full;
    use hyper::body::{Frame, SizeHint};
    use profbridge_net::compression::{Compression, Encoder, EncoderContext};

    use tokio::time::Instant;

    use super::*;
    use crate::testing::intake;

    fn gzip(plain: &[u8]) -> Bytes {
        let mut context = EncoderContext::default();
        let mut encoder = Encoder::new(Compression::GZIP, Vec::new(), &mut context).unwrap();
        encoder.write_all(plain).unwrap();
        encoder.finish(&mut context).unwrap().into()
    }

    /// Guarantees: a compressed body that may be forwarded is kept beside its output, and the permit covers both; a
    /// body that is not smaller, or consists of several members, is released with its memory.
    #[test]
    fn packed_bytes_are_kept() {
        let (intake, consumer) = intake(1 << 20);
        let zeros = vec![0; 50_000];
        let twice = Bytes::from([gzip(&zeros), gzip(&zeros)].concat());
        for (packed, plain, is_kept) in
            [(gzip(&zeros), zeros.len(), true), (twice, 2 * zeros.len(), false), (gzip(b"short"), 5, false)]
        {
            let mut permit = intake.admit(packed.len() as u64).unwrap();
            let (unpacked, kept) = unpack_keeping(packed.clone(), Coding::Gzip, 1 << 20, &intake, &mut permit).unwrap();
            assert_eq!((unpacked.len(), kept.is_some_and(|kept| kept == packed)), (plain, is_kept));
            let beside = if is_kept { packed.len() as u64 } else { 0 };
            assert!(permit.bytes() >= plain as u64 + beside && permit.bytes() < (2 * plain) as u64 + 16_384 + beside);
        }
        assert_eq!(consumer.memory_used(), 0);
        let mut permit = intake.admit(4).unwrap();
        let plain = unpack_keeping(Bytes::from_static(b"spam"), Coding::Identity, 10, &intake, &mut permit).unwrap();
        assert_eq!((plain, permit.bytes()), ((Bytes::from_static(b"spam"), None), 4));
    }

    /// Guarantees: a body takes exactly as much memory as it has bytes, with and without an announced length.
    #[tokio::test]
    async fn no_slack() {
        let (intake, consumer) = intake(1 << 20);
        let limits = BodyLimits::new(1 << 20);
        let announced = read(Full::new(Bytes::from_static(b"12345")), limits, &intake).await.unwrap();
        // A mapped body has no size hint.
        let unannounced = Full::new(Bytes::from_static(b"12345")).map_frame(|frame| frame);
        assert_eq!(unannounced.size_hint().exact(), None);
        let chunked = read(unannounced, limits, &intake).await.unwrap();
        for received in [&announced, &chunked] {
            assert_eq!((&received.bytes[..], received.permit.bytes()), (&b"12345"[..], 5));
            assert_eq!(Vec::from(received.bytes.clone()).capacity(), 5);
        }
        assert_eq!(consumer.memory_used(), 10);
    }

    /// Starts many large bodies at once, with memory for only some of them.
    async fn uploads(announced: bool) {
        const SIZE: usize = 3 << 20;
        const UPLOADS: usize = 8;
        let (intake, _consumer) = intake(8 << 20);
        let patient = intake.waiting_until(Instant::now() + Duration::from_secs(600));
        let mut senders = Vec::new();
        let mut uploads = tokio::task::JoinSet::new();
        for _ in 0..UPLOADS {
            let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
            let patient = patient.clone();
            uploads.spawn(async move {
                let body = PiecewiseBody { receiver, left: announced.then_some(SIZE as u64) };
                let received = read(body, BodyLimits::new(SIZE), &patient).await.unwrap();
                assert_eq!(received.bytes.len(), SIZE);
            });
            senders.push(sender);
        }
        // Each sender waits until its previous piece was read, so that all bodies have started before any has finished.
        let send = senders.into_iter().map(|sender| {
            tokio::spawn(async move {
                for _ in 0..SIZE >> 16 {
                    sender.send(Ok(Frame::data(Bytes::from(vec![b'a'; 1 << 16])))).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        });
        let senders: Vec<_> = send.collect();
        let mut ended = 0;
        while ended < UPLOADS {
            tokio::select! {
                biased;
                upload = uploads.join_next() => {
                    upload.unwrap().unwrap();
                    ended += 1;
                }
                () = tokio::task::yield_now() => {
                    // A small event must not wait for a large body.
                    let event = Full::new(Bytes::from_static(b"12345"));
                    let brief = intake.waiting_until(Instant::now());
                    read(event, BodyLimits::new(100), &brief).await.unwrap();
                }
            }
        }
        for sender in senders {
            sender.await.unwrap();
        }
    }

    /// A body that arrives in several pieces.
    struct PiecewiseBody {
        receiver: tokio::sync::mpsc::Receiver<Result<Frame<Bytes>, Infallible>>,
        left: Option<u64>,
    }

    impl Body for PiecewiseBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let frame = self.receiver.poll_recv(cx);
            if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&frame, &mut self.left) {
                *left -= frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            frame
        }

        fn size_hint(&self) -> SizeHint {
            self.left.map_or(SizeHint::default(), SizeHint::with_exact)
        }
    }

    /// Attack: more compressed bodies than fit into memory grow at the same time until none finds the memory for the
    /// rest. All complete, and a small body does not wait for them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn decompressions_do_not_wait_for_each_other() {
        const SIZE: usize = 5 << 20;
        const BODIES: usize = 8;
        let (intake, consumer) = intake(6 << 20);
        let patient = intake.waiting_until(Instant::now() + Duration::from_secs(30));
        // There is one slot. A waiting body must not occupy it.
        let slots = Arc::new(Semaphore::new(1));
        let unpacking = |packed: &Bytes| {
            let (packed, intake, slots) = (packed.clone(), patient.clone(), Arc::clone(&slots));
            async move {
                let permit = intake.admit(packed.len() as u64).unwrap();
                let unpacked = run_in_turn(&slots, &intake, (packed, permit), |(packed, mut permit), intake| {
                    let came = permit.bytes();
                    let unpacked = unpack_instead(packed.clone(), Coding::Gzip, SIZE, intake, &mut permit);
                    unpacked.map(|plain| plain.len()).map_err(|error| {
                        permit.set(came);
                        (error, Some((packed, permit)))
                    })
                });
                unpacked.await.unwrap().unwrap()
            }
        };
        let turn = patient.in_turn().await.unwrap();
        let large = gzip(&vec![0; SIZE]);
        // While this memory is held, none of the bodies fits.
        let held = intake.admit(2 << 20).unwrap();
        let mut bodies = tokio::task::JoinSet::new();
        for _ in 0..BODIES {
            bodies.spawn(unpacking(&large));
        }
        assert_eq!(unpacking(&gzip(&[0; 50_000])).await, 50_000);
        drop((turn, held));
        for unpacked in bodies.join_all().await {
            assert_eq!(unpacked, SIZE);
        }
        assert_eq!(consumer.memory_used(), 0);
    }

    /// Attack: more large bodies than fit into memory arrive at the same time, with and without an announced length.
    /// They complete one after the other: none waits for memory that another waiting one holds. Small bodies overtake
    /// them.
    #[tokio::test(start_paused = true)]
    async fn uploads_do_not_wait_for_each_other() {
        uploads(true).await;
        uploads(false).await;
    }
}
