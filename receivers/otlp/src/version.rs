//! The layout that a request comes with: by its path, or by a number in its metadata.

use http::HeaderMap;
use profbridge_wire::otlp::Layout;

use crate::fault::Fault;

/// The metadata in which a sender says which layout of `v1development` it writes (opentelemetry-proto#857). A missing
/// one means 1, so nothing has to be passed on beside a request that is passed on as it came.
pub(crate) const HEADER: &str = "otlp-profiles-development-version";

/// The versions there are, and the layout of each.
const VERSIONS: [(u32, Layout); 1] = [(1, Layout::V1_10)];

/// The layout that the metadata of a request of `v1development` names; `None` where it names none, and the request has
/// to tell itself: senders of the earlier layouts did not know of it.
pub(crate) fn announced(headers: &HeaderMap) -> Result<Option<Layout>, Fault> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Fault::invalid(HEADER, "stands more than once"));
    }
    let text = value.to_str().unwrap_or_default();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = digits.then(|| text.parse::<u32>().ok()).flatten() else {
        return Err(Fault::invalid(HEADER, format!("{:?} is not a number", value)));
    };
    match VERSIONS.iter().find(|(known, _)| *known == number) {
        Some((_, layout)) => Ok(Some(*layout)),
        None => Err(Fault::invalid(HEADER, format!("{number} is not supported, 1 is"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: one number that is known names the layout, none leaves it open, and everything else is refused.
    /// rule: otlp-profiles#development-version, otlp#development-version
    #[test]
    fn one_known_number() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, http::HeaderValue::from_static(value));
            }
            announced(&headers)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["1"]), Ok(Some(Layout::V1_10)));
        for wrong in [&["1", "1"][..], &["0"], &["2"], &[""], &["+1"], &["1.0"], &["one"], &["99999999999999999999"]] {
            let fault = read(wrong).unwrap_err();
            assert_eq!(fault.code(), tonic::Code::InvalidArgument, "{wrong:?}");
            assert_eq!(fault.violation.unwrap().place, HEADER);
        }
    }
}
