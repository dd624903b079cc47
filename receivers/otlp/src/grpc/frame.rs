//! The frame of a unary call's only message: a flag, a length of four bytes, and the message.

use bytes::{Buf as _, Bytes};
use http_body::Body;
use http_body_util::BodyExt as _;
use profbridge_engine::body::{Buffer, ReceivedBody};
use profbridge_engine::intake::Intake;
use profbridge_net::BoxError;
use profbridge_net::body::{BodyError, BodyLimits, Guarded};

use crate::fault::CallFault;

/// The place that answers name if a frame is broken.
pub(super) const PLACE: &str = "gRPC message";

/// The size of the flag and the length together, in bytes.
pub(super) const PREFIX: usize = 5;

/// Reads the message. Also returns whether it is compressed. `limits` apply to the message without its prefix.
pub(super) async fn read_message<B>(
    body: B,
    limits: BodyLimits,
    intake: &Intake,
) -> Result<(ReceivedBody, bool), CallFault>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let max_bytes = limits.max_bytes;
    let mut body = Guarded::new(body, BodyLimits { max_bytes: max_bytes.saturating_add(PREFIX), ..limits });
    let mut prefix = Prefix::default();
    let mut message: Option<Message<'_>> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            BodyError::TooLarge { .. } => CallFault::too_large(max_bytes),
            other => other.into(),
        })?;
        let Ok(mut data) = frame.into_data() else { continue };
        if message.is_none() {
            let Some((packed, length)) = prefix.parse(&mut data)? else { continue };
            if length > max_bytes {
                return Err(CallFault::too_large(max_bytes));
            }
            message = Some(Message { packed, length, buffer: Buffer::new(intake, Some(length)).await? });
        }
        if let Some(message) = &mut message {
            message.append(data).await?;
        }
    }
    match message {
        Some(message) => message.finish(),
        None => {
            Err(CallFault::invalid(PLACE, format!("the call ended after {} bytes, before the message", prefix.seen)))
        }
    }
}

#[derive(Default)]
struct Prefix {
    bytes: [u8; PREFIX],
    seen: usize,
}

impl Prefix {
    /// Parses the flag and the length once both have arrived.
    fn parse(&mut self, data: &mut Bytes) -> Result<Option<(bool, usize)>, CallFault> {
        let more = data.len().min(PREFIX - self.seen);
        data.copy_to_slice(&mut self.bytes[self.seen..self.seen + more]);
        self.seen += more;
        if self.seen < PREFIX {
            return Ok(None);
        }
        let [flag, length @ ..] = self.bytes;
        if flag > 1 {
            return Err(CallFault::invalid(PLACE, format!("its flag is {flag}, which is neither 0 nor 1")));
        }
        Ok(Some((flag == 1, u32::from_be_bytes(length) as usize)))
    }
}

struct Message<'a> {
    packed: bool,
    length: usize,
    buffer: Buffer<'a>,
}

impl Message<'_> {
    async fn append(&mut self, mut data: Bytes) -> Result<(), CallFault> {
        self.buffer.append(&mut data, self.length - self.buffer.len()).await?;
        if data.is_empty() {
            return Ok(());
        }
        Err(CallFault::invalid(PLACE, "something follows it, but the call takes one message"))
    }

    fn finish(self) -> Result<(ReceivedBody, bool), CallFault> {
        let (came, announced) = (self.buffer.len(), self.length);
        if came < announced {
            return Err(CallFault::invalid(PLACE, format!("it announces {announced} bytes, {came} came")));
        }
        Ok((self.buffer.finish(), self.packed))
    }
}
