//! A request's bytes, read and unpacked under the memory budget: what receivers over HTTP have in common.
//!
//! The announced length is asked for at once, so that a request that cannot fit is told so before it is sent, and then
//! given back: held is what arrives, since a thousand peers can announce 64 MiB each and send nothing. The buffer
//! doubles up to the announced length, so a true announcement ends in a buffer without slack.
//!
//! Where the [`Intake`] waits for memory ([`Intake::waiting_until`]), reading waits. What was announced is then held from
//! the beginning, and without an announcement one request at a time grows large: requests that wait for more while they
//! hold a part would wait for each other.

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
use crate::intake::Intake;

/// The buffer's first size, in bytes, unless less is announced.
const FIRST: usize = 64 * 1024;

/// So large several bodies may become at the same time without having said how large they are, where they wait for
/// memory. What all of them hold stays small beside what the one needs that grows on.
const MOST_UNANNOUNCED: usize = 256 * 1024;

/// How long the rest of a request is read and forgotten that is refused, so that its sender sees the answer.
pub const LINGER: Duration = Duration::from_secs(5);

/// Bytes and the memory that they take.
#[derive(Debug)]
pub struct Received {
    /// The bytes.
    pub bytes: Bytes,
    /// Their memory.
    pub permit: Permit,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is too large, also where it only announced to be, was too slow, or broke off.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// There is no memory for it.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// A buffer that asks the budget before it grows.
#[derive(Debug)]
pub struct Buffer<'a> {
    intake: &'a Intake,
    permit: Permit,
    bytes: Vec<u8>,
    /// How many bytes are expected; more may come.
    announced: usize,
    /// Held while it grows large without an announcement.
    turn: Option<OwnedSemaphorePermit>,
}

impl<'a> Buffer<'a> {
    /// An empty buffer for a request that announces so many bytes, or nothing.
    ///
    /// # Errors
    ///
    /// So many bytes would not fit.
    pub async fn new(intake: &'a Intake, announced: Option<usize>) -> Result<Self, Rejected> {
        let permit = intake.admitted(0).await?;
        let mut buffer = Self { intake, permit, bytes: Vec::new(), announced: 0, turn: None };
        buffer.announce(announced.unwrap_or(0)).await?;
        Ok(buffer)
    }

    /// Says how many bytes are expected in all.
    ///
    /// # Errors
    ///
    /// So many bytes would not fit.
    pub async fn announce(&mut self, announced: usize) -> Result<(), Rejected> {
        self.announced = announced;
        let held = self.permit.bytes();
        self.intake.grown(&mut self.permit, (announced as u64).saturating_sub(held)).await?;
        if !self.intake.may_wait() {
            self.permit.set(held);
        }
        Ok(())
    }

    /// Makes room for `more` bytes.
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
        if needed > self.announced && target > MOST_UNANNOUNCED && self.turn.is_none() && self.intake.may_wait() {
            self.turn = self.intake.turn().await?;
        }
        let held = self.permit.bytes();
        self.intake.grown(&mut self.permit, (target as u64).saturating_sub(held)).await?;
        self.bytes.reserve_exact(target - self.bytes.len());
        Ok(())
    }

    /// Takes up to `most` bytes of `data`.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub async fn take(&mut self, data: &mut Bytes, most: usize) -> Result<(), Rejected> {
        let taken = data.split_to(most.min(data.len()));
        self.reserve(taken.len()).await?;
        self.bytes.extend_from_slice(&taken);
        Ok(())
    }

    /// How many bytes are in it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is in it, in as much memory as it has bytes: who keeps it keeps no slack, of which a small body without an
    /// announced length would have most.
    pub fn finish(mut self) -> Received {
        self.bytes.shrink_to_fit();
        self.permit.set(self.bytes.capacity() as u64);
        Received { bytes: self.bytes.into(), permit: self.permit }
    }
}

/// Reads a whole body.
///
/// # Errors
///
/// It is larger than `limits` allow, too slow, broken off, or there is no memory for it.
pub async fn read<B>(body: B, limits: BodyLimits, intake: &Intake) -> Result<Received, ReadError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    // Compared before the budget is asked: too large is an answer for good.
    let announced = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if announced.is_some_and(|length| length > limits.max_bytes) {
        return Err(BodyError::TooLarge { limit: limits.max_bytes }.into());
    }
    let mut buffer = Buffer::new(intake, announced).await?;
    fill(&mut buffer, &mut Guarded::new(body, limits), usize::MAX).await?;
    Ok(buffer.finish())
}

/// Reads a body until its end, or until there are at least `enough` bytes. Whether it came to the end.
///
/// # Errors
///
/// It is too large, too slow, broken off, or there is no memory for it.
pub async fn fill<B>(buffer: &mut Buffer<'_>, body: &mut Guarded<B>, enough: usize) -> Result<bool, ReadError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    while buffer.len() < enough {
        let Some(frame) = body.frame().await else { return Ok(true) };
        if let Ok(mut data) = frame?.into_data() {
            buffer.take(&mut data, usize::MAX).await?;
        }
    }
    Ok(body.is_end_stream())
}

/// Reads what is left of a request for at most so long, and forgets it, where its sender would not see the answer
/// otherwise.
///
/// Over HTTP/1 the kernel resets a socket that is closed with bytes unread; over HTTP/2 some clients take the early end
/// of the stream for a failure (curl 7.88). Clients repeat a request whose connection broke.
pub async fn discard_rest(request: Request<Incoming>, time: Duration) {
    // A sender that expects to be told whether to send has not begun.
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

/// How many requests are unpacked and read at the same time: as many as there are cores. The others wait, with nothing
/// but what they sent, so that none is slow because all are.
pub fn slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)))
}

/// Runs `work` on a thread for blocking work, once there is a slot. Where it fails, what it was made of is gone, and is
/// given back to the system if it is much. `None` where it panicked, which the log says.
pub async fn run_in<T: Send + 'static, E: Send + 'static>(
    slots: &Arc<Semaphore>,
    intake: &Intake,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Option<Result<T, E>> {
    // Never closed.
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

/// Why a body was not unpacked.
#[derive(Debug)]
pub enum UnpackError {
    /// What it unpacks to is too large, or it is not what its coding says.
    Decompress(DecompressError),
    /// There is no memory for what it unpacks to.
    Rejected(Rejected),
}

/// Undoes a body's coding. The permit then also holds what the output takes, while the output is there. Blocks the
/// calling thread for as long as the work takes, and where the intake waits for memory, for that.
///
/// # Errors
///
/// The output is larger than `limit`, the body is not what `coding` says, or there is no memory.
pub fn unpack(
    bytes: Bytes,
    coding: Coding,
    limit: usize,
    intake: &Intake,
    permit: &mut Permit,
) -> Result<Decompressed, UnpackError> {
    let mut granted = 0;
    let mut rejected: Option<Rejected> = None;
    let mut grant = |wanted: usize| match intake.grow_blocking(permit, wanted.saturating_sub(granted) as u64) {
        Ok(()) => {
            granted = granted.max(wanted);
            true
        }
        Err(why) => {
            rejected = Some(why);
            false
        }
    };
    let unpacked = decompress_granted(coding, bytes, limit, &mut grant);
    match (unpacked, rejected) {
        (Err(DecompressError::NotGranted { .. }), Some(rejected)) => Err(UnpackError::Rejected(rejected)),
        (unpacked, _) => unpacked.map_err(UnpackError::Decompress),
    }
}

/// As [`unpack`], where nobody keeps what was packed: the permit then holds the output in its place. Bytes without a
/// coding stay as they are.
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

/// As [`unpack_instead`], but keeps what was packed where it can be passed on in place of the output: it is smaller,
/// and everybody reads it in the same way. The permit then holds both.
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

    /// Guarantees: what was packed stays beside what it unpacks to, and both take memory, where it may stand in its
    /// place; where it is no smaller or in several pieces it is gone, and so is its memory.
    #[test]
    fn packed_bytes_are_kept() {
        let (intake, consumer) = intake(1 << 20);
        let zeros = vec![0; 50_000];
        let gzip = |plain: &[u8]| {
            let mut context = EncoderContext::default();
            let mut encoder = Encoder::new(Compression::GZIP, Vec::new(), &mut context).unwrap();
            encoder.write_all(plain).unwrap();
            Bytes::from(encoder.finish(&mut context).unwrap())
        };
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

    /// Guarantees: what was read takes the memory that it has bytes, with and without an announced length.
    #[tokio::test]
    async fn no_slack() {
        let (intake, consumer) = intake(1 << 20);
        let limits = BodyLimits::new(1 << 20);
        let announced = read(Full::new(Bytes::from_static(b"12345")), limits, &intake).await.unwrap();
        // What maps frames does not say how long the body is.
        let unannounced = Full::new(Bytes::from_static(b"12345")).map_frame(|frame| frame);
        assert_eq!(unannounced.size_hint().exact(), None);
        let chunked = read(unannounced, limits, &intake).await.unwrap();
        for received in [&announced, &chunked] {
            assert_eq!((&received.bytes[..], received.permit.bytes()), (&b"12345"[..], 5));
            assert_eq!(Vec::from(received.bytes.clone()).capacity(), 5);
        }
        assert_eq!(consumer.memory_used(), 10);
    }

    /// Many large bodies at once, all of which have begun, with memory for some of them.
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
                let body = Pieces { receiver, left: announced.then_some(SIZE as u64) };
                let received = read(body, BodyLimits::new(SIZE), &patient).await.unwrap();
                assert_eq!(received.bytes.len(), SIZE);
            });
            senders.push(sender);
        }
        // Each sender goes on as its body is read, a part at a time, so that all have begun before one has ended.
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
                    // A small event never waits for a large one.
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

    /// A body that comes in pieces.
    struct Pieces {
        receiver: tokio::sync::mpsc::Receiver<Result<Frame<Bytes>, Infallible>>,
        left: Option<u64>,
    }

    impl Body for Pieces {
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

    /// Attack: more large bodies than there is memory for, all at the same time, end one after the other, whether they
    /// say how long they are or not: none waits for memory that another one holds that waits. Small ones pass them.
    #[tokio::test(start_paused = true)]
    async fn uploads_do_not_wait_for_each_other() {
        uploads(true).await;
        uploads(false).await;
    }
}
