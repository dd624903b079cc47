//! The attributes that the conversion depends on, found in one pass over a span's attributes.

use crate::otlp::traces::AnyValue;

macro_rules! keys {
    ($($name:ident = $text:literal;)*) => {
        /// An attribute that influences a transaction or a span.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum AttributeKey {
            $($name,)*
        }

        /// All keys, sorted by length.
        const ALL: &[(&str, AttributeKey)] = &[$(($text, AttributeKey::$name),)*];
    };
}

// Sorted by length: `STARTS` finds the keys of one length.
keys! {
    UserId = "user.id";
    UrlFull = "url.full";
    UrlPath = "url.path";
    HttpUrl = "http.url";
    HttpHost = "http.host";
    DbSystem = "db.system";
    UrlQuery = "url.query";
    SentryOp = "sentry.op";
    UserName = "user.name";
    ThreadId = "thread.id";
    EnduserId = "enduser.id";
    HttpRoute = "http.route";
    RpcSystem = "rpc.system";
    UrlScheme = "url.scheme";
    UserEmail = "user.email";
    HttpMethod = "http.method";
    HttpTarget = "http.target";
    HttpScheme = "http.scheme";
    RpcService = "rpc.service";
    ServerPort = "server.port";
    ThreadName = "thread.name";
    DbStatement = "db.statement";
    FaasTrigger = "faas.trigger";
    UrlTemplate = "url.template";
    NetHostName = "net.host.name";
    NetHostPort = "net.host.port";
    DbQueryText = "db.query.text";
    SentryOrigin = "sentry.origin";
    SentrySource = "sentry.source";
    UserFullName = "user.full_name";
    DbSystemName = "db.system.name";
    HttpClientIp = "http.client_ip";
    ServerAddress = "server.address";
    ClientAddress = "client.address";
    RpcSystemName = "rpc.system.name";
    HttpUserAgent = "http.user_agent";
    UserAgentName = "user_agent.name";
    HttpStatusCode = "http.status_code";
    MessagingSystem = "messaging.system";
    SentryProfilerId = "sentry.profiler_id";
    SentrySampleRate = "sentry.sample_rate";
    UserAgentVersion = "user_agent.version";
    HttpRequestMethod = "http.request.method";
    UserAgentOriginal = "user_agent.original";
    RpcGrpcStatusCode = "rpc.grpc.status_code";
    GenAiOperationName = "gen_ai.operation.name";
    HttpRequestBodySize = "http.request.body.size";
    HttpResponseBodySize = "http.response.body.size";
    SentryCustomSpanName = "sentry.custom_span_name";
    RpcResponseStatusCode = "rpc.response.status_code";
    HttpResponseStatusCode = "http.response.status_code";
    SentrySegmentNameSource = "sentry.segment.name.source";
}

const LONGEST: usize = ALL[ALL.len() - 1].0.len();

/// The index in [`ALL`] of the first key of each length.
const STARTS: [u8; LONGEST + 2] = {
    let mut starts = [0; LONGEST + 2];
    let (mut length, mut at) = (0, 0);
    while length < starts.len() {
        while at < ALL.len() && ALL[at].0.len() < length {
            assert!(at == 0 || ALL[at - 1].0.len() <= ALL[at].0.len(), "the shorter keys stand before the longer ones");
            at += 1;
        }
        starts[length] = at as u8;
        length += 1;
    }
    starts
};

impl AttributeKey {
    /// The key with this text.
    pub(super) fn of(text: &str) -> Option<Self> {
        let [from, until] = *STARTS.get(text.len()..)?.first_chunk::<2>()?;
        let those = &ALL[usize::from(from)..usize::from(until)];
        those.iter().find(|(known, _)| *known == text).map(|(_, key)| *key)
    }

    /// Whether the value is written elsewhere, so that it is not repeated in the data. The `sentry.*` keys are those in
    /// which Sentry's SDKs on OpenTelemetry pass on their own fields (getsentry/sentry-javascript
    /// `packages/opentelemetry/src/spanExporter.ts`).
    pub(super) fn has_its_own_place(self) -> bool {
        matches!(
            self,
            AttributeKey::SentryOp
                | AttributeKey::SentryOrigin
                | AttributeKey::SentrySource
                | AttributeKey::SentrySegmentNameSource
                | AttributeKey::SentrySampleRate
                | AttributeKey::SentryCustomSpanName
                | AttributeKey::SentryProfilerId
                | AttributeKey::ThreadId
                | AttributeKey::ThreadName
        )
    }
}

/// The values of a span's known attributes.
pub(super) struct KnownAttributes<'a> {
    /// For each key the index of its value in `values`, from 1 on; 0 if it has none.
    places: [u8; ALL.len()],
    values: Vec<AnyValue<'a>>,
}

impl<'a> KnownAttributes<'a> {
    pub(super) fn new() -> Self {
        Self { places: [0; ALL.len()], values: Vec::with_capacity(16) }
    }

    /// Records an attribute. Of duplicate keys the first one counts; returns whether this is the first.
    #[inline]
    pub(super) fn note(&mut self, key: AttributeKey, value: AnyValue<'a>) -> bool {
        let place = &mut self.places[key as usize];
        let is_first = *place == 0;
        if is_first {
            self.values.push(value);
            *place = self.values.len() as u8;
        }
        is_first
    }

    #[inline]
    pub(super) fn get(&self, key: AttributeKey) -> Option<AnyValue<'a>> {
        let place = usize::from(self.places[key as usize]).checked_sub(1)?;
        self.values.get(place).copied()
    }

    #[inline]
    pub(super) fn has(&self, key: AttributeKey) -> bool {
        self.places[key as usize] > 0
    }

    /// The first non-empty text of these keys.
    pub(super) fn text(&self, keys: &[AttributeKey]) -> Option<&'a str> {
        keys.iter().find_map(|key| self.get(*key)?.text().filter(|text| !text.is_empty()))
    }

    /// The first integer of these keys.
    pub(super) fn int(&self, keys: &[AttributeKey]) -> Option<i64> {
        keys.iter().find_map(|key| self.get(*key)?.int())
    }
}
