//! Requests to etcd's JSON gateway: several endpoints tried in turn, and a time limit for each request.

use super::error::EtcdError;
use super::messages::{Outcome, Refusal, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem};

const USUAL_PATIENCE: Duration = Duration::from_secs(5);
/// After this an endpoint is given up for another. etcd's own elections take 1 s to 2 s.
const REQUEST_LIMIT: Duration = Duration::from_secs(3);
/// Between two rounds over all endpoints.
const PAUSE: Duration = Duration::from_millis(50);
/// Certificates that the host trusts, where no others are named.
const SYSTEM_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The codes of gRPC that say so.
const INVALID: u32 = 3;
const DENIED: [u32; 2] = [7, 16];
const EXHAUSTED: u32 = 8;
const OUT_OF_RANGE: u32 = 11;
/// Not now: no leader, or it took too long.
const LATER: [u32; 2] = [4, 14];

/// Files in PEM form for endpoints with `https`.
#[derive(Clone, Default, Debug)]
pub struct TlsFiles {
    /// Certificates that sign etcd's; `None`: those that the host trusts.
    pub ca: Option<PathBuf>,
    /// What this host shows: a certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// How to reach etcd.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// As `http://HOST:PORT`, each a member of the same etcd cluster.
    pub endpoints: Vec<String>,
    pub tls: TlsFiles,
    /// For how long a request is tried at all endpoints before it fails.
    pub patience: Duration,
}

impl EtcdOptions {
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, tls: TlsFiles::default(), patience: USUAL_PATIENCE }
    }
}

/// What came back, and from where.
pub(super) struct Answer<T> {
    pub(super) endpoint: String,
    pub(super) body: T,
}

/// Sends requests. One may reach etcd more than once.
pub(super) trait Call: Send + Sync {
    fn call(&self, path: &str, request: &[u8]) -> Result<Answer<Vec<u8>>, EtcdError>;

    /// The answer's messages as they come. Reading fails after `silence` without any.
    fn stream(&self, path: &str, request: &[u8], silence: Duration) -> Result<Answer<Box<dyn Read + Send>>, EtcdError>;
}

/// The answer to a request that is one message.
pub(super) fn ask<T: DeserializeOwned>(calls: &dyn Call, path: &str, request: &impl Serialize) -> Result<T, EtcdError> {
    let answer = calls.call(path, &encode(request))?;
    serde_json::from_slice(&answer.body).map_err(|error| EtcdError::Unexpected {
        endpoint: answer.endpoint,
        request: path.to_owned(),
        what: error.to_string(),
    })
}

pub(super) fn transact(calls: &dyn Call, transaction: &Transaction) -> Result<Outcome, EtcdError> {
    ask(calls, "/v3/kv/txn", transaction)
}

pub(super) fn encode(request: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(request).expect("strings, numbers and lists of them")
}

pub(super) struct Client {
    agent: ureq::Agent,
    endpoints: Vec<String>,
    patience: Duration,
    /// Which endpoint answered last.
    preferred: AtomicUsize,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, EtcdError> {
        if options.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let endpoints: Vec<_> = options.endpoints.iter().map(|text| endpoint(text)).collect::<Result<_, _>>()?;
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(REQUEST_LIMIT));
        if endpoints.iter().any(|endpoint| endpoint.starts_with("https:")) {
            config = config.tls_config(tls(&options.tls)?);
        }
        let agent = config.build().new_agent();
        Ok(Self { agent, endpoints, patience: options.patience, preferred: AtomicUsize::new(0) })
    }

    /// Tries `send` at all endpoints in turn until one answers, or the patience is over.
    fn at_endpoints<T>(&self, send: impl Fn(&str, Duration) -> Result<T, Failure>) -> Result<Answer<T>, EtcdError> {
        let deadline = Instant::now() + self.patience;
        // What an endpoint may have taken, though it did not say so.
        let mut unanswered = None;
        loop {
            let first = self.preferred.load(Ordering::Relaxed);
            let mut tried = Vec::new();
            for index in (first..first + self.endpoints.len()).map(|index| index % self.endpoints.len()) {
                let endpoint = &self.endpoints[index];
                let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
                match send(endpoint, left.min(REQUEST_LIMIT)) {
                    Ok(body) => {
                        self.preferred.store(index, Ordering::Relaxed);
                        return Ok(Answer { endpoint: endpoint.clone(), body });
                    }
                    Err(Failure::Refused(error)) => return Err(of_all(error, unanswered)),
                    Err(Failure::Unsent(what)) => tried.push(format!("{endpoint}: {what}")),
                    Err(Failure::Elsewhere(what)) => {
                        tried.push(format!("{endpoint}: {what}"));
                        unanswered = tried.last().cloned();
                    }
                }
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(EtcdError::Unreachable { tried: tried.join("; ") });
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Call for Client {
    fn call(&self, path: &str, request: &[u8]) -> Result<Answer<Vec<u8>>, EtcdError> {
        self.at_endpoints(|endpoint, limit| {
            let sent = self
                .agent
                .post(format!("{endpoint}{path}"))
                .config()
                .timeout_global(Some(limit))
                .build()
                .content_type("application/json")
                .send(request);
            let mut response = sent.map_err(|error| unanswered(&error))?;
            let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec();
            let body = body.map_err(|error| Failure::Elsewhere(error.to_string()))?;
            match response.status().is_success() {
                true => Ok(body),
                false => Err(refusal(endpoint, path, response.status().as_u16(), &body)),
            }
        })
    }

    fn stream(&self, path: &str, request: &[u8], silence: Duration) -> Result<Answer<Box<dyn Read + Send>>, EtcdError> {
        self.at_endpoints(|endpoint, limit| {
            let sent = self
                .agent
                .post(format!("{endpoint}{path}"))
                .config()
                .timeout_recv_response(Some(limit))
                .timeout_per_read(Some(silence))
                .build()
                .content_type("application/json")
                .send(request);
            let mut response = sent.map_err(|error| unanswered(&error))?;
            if !response.status().is_success() {
                let body = response.body_mut().read_to_vec().unwrap_or_default();
                return Err(refusal(endpoint, path, response.status().as_u16(), &body));
            }
            let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
            Ok(Box::new(reader) as Box<dyn Read + Send>)
        })
    }
}

enum Failure {
    /// Another endpoint may answer.
    Elsewhere(String),
    /// The same, of an endpoint to which nothing was sent.
    Unsent(String),
    Refused(EtcdError),
}

/// Of a request that got no answer.
fn unanswered(error: &ureq::Error) -> Failure {
    let is_unsent = match error {
        ureq::Error::Io(source) => source.kind() == std::io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        _ => false,
    };
    if is_unsent { Failure::Unsent(error.to_string()) } else { Failure::Elsewhere(error.to_string()) }
}

/// That etcd has no space is what came of a request only if no endpoint may have taken it before.
fn of_all(error: EtcdError, unanswered: Option<String>) -> EtcdError {
    match (error, unanswered) {
        (error @ EtcdError::Quota { .. }, Some(before)) => {
            EtcdError::Unreachable { tried: format!("{before}; {error}") }
        }
        (error, _) => error,
    }
}

fn refusal(endpoint: &str, path: &str, status: u16, body: &[u8]) -> Failure {
    let Ok(said) = serde_json::from_slice::<Refusal>(body) else {
        let what = format!("HTTP status {status}");
        return match status {
            404 => Failure::Refused(EtcdError::Unexpected {
                endpoint: endpoint.to_owned(),
                request: path.to_owned(),
                what,
            }),
            _ => Failure::Elsewhere(what),
        };
    };
    let (endpoint, what) = (endpoint.to_owned(), said.message);
    match said.code {
        code if LATER.contains(&code) => Failure::Elsewhere(what),
        EXHAUSTED if what.contains("space exceeded") => Failure::Refused(EtcdError::Quota { endpoint }),
        // Too many requests at once.
        EXHAUSTED => Failure::Elsewhere(what),
        code if DENIED.contains(&code) => Failure::Refused(EtcdError::Denied { endpoint, what }),
        OUT_OF_RANGE if what.contains("compacted") => Failure::Refused(EtcdError::Compacted { endpoint }),
        INVALID if what.contains("too many operations") || what.contains("too large") => {
            Failure::Refused(EtcdError::Limits { endpoint, what })
        }
        _ => Failure::Refused(EtcdError::Refused { endpoint, request: path.to_owned(), what }),
    }
}

/// The endpoint without a slash at its end.
fn endpoint(text: &str) -> Result<String, EtcdError> {
    let wrong = |what: String| EtcdError::Endpoint { endpoint: text.to_owned(), what };
    let uri: Uri = text.parse().map_err(|error: ureq::http::uri::InvalidUri| wrong(error.to_string()))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it has no scheme http or https".to_owned()));
    }
    if uri.host().is_none_or(str::is_empty) || uri.port_u16().is_none() {
        return Err(wrong("it has no host or no port".to_owned()));
    }
    match uri.path_and_query().map(ureq::http::uri::PathAndQuery::as_str) {
        None | Some("" | "/") => Ok(text.trim_end_matches('/').to_owned()),
        Some(path) => Err(wrong(format!("it has the path {path}"))),
    }
}

fn tls(files: &TlsFiles) -> Result<TlsConfig, EtcdError> {
    let roots = certificates(files.ca.as_deref().unwrap_or(Path::new(SYSTEM_CERTIFICATES)))?;
    let client = files.certificate.as_ref().map(|(certificate, key)| {
        let chain = certificates(certificate)?;
        Ok(ClientCert::new_with_certs(&chain, private_key(key)?))
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(client.transpose()?)
        .build())
}

fn pem(path: &Path) -> Result<Vec<PemItem<'static>>, EtcdError> {
    let fault = |what: String| EtcdError::TlsFile { path: path.to_owned(), what };
    let bytes = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    parse_pem(&bytes).collect::<Result<_, _>>().map_err(|error| fault(error.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, EtcdError> {
    let certificates = pem(path)?.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    match certificates.collect::<Vec<_>>() {
        found if found.is_empty() => {
            Err(EtcdError::TlsFile { path: path.to_owned(), what: "it has no certificate in PEM form".to_owned() })
        }
        found => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, EtcdError> {
    let key = pem(path)?.into_iter().find_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    let what = "it has no private key in PEM form".to_owned();
    key.ok_or_else(|| EtcdError::TlsFile { path: path.to_owned(), what })
}
