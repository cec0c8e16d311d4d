//! The daemon's socket: a little HTTP on a Unix socket in the state directory, and on a loopback port for metrics if asked for.
//!
//! The Unix socket is the owner's alone by its mode. Every user of the host reaches a loopback port, and so does a web page that a user looks at,
//! whose name is made to lead to 127.0.0.1: there a request must carry the token that stands in a file of the owner, and name a loopback
//! host (`access`).
//!
//! `curl --unix-socket STATE/run/daemon.sock http://daemon/metrics` works as `stripewise phase` does. Each connection carries one request.
//!
//! `httparse` reads the heads of requests and answers. A server crate is not used: the small ones listen on no Unix socket that has its
//! mode before its name, and leave the limits of this module (length of a head, patience, connections at once) to the caller or out.

use super::access::Token;
use super::answer::Response;
use super::error::{DaemonError, Result};
use crate::messages::shown;
use crate::paths::OnPath as _;
use rustix::fs::{Mode, OFlags};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const NAME: &str = "daemon.sock";
/// Longest head of a request.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Most headers of a request or an answer.
const MAX_HEADERS: usize = 64;
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// A peer that neither sends nor takes anything for this long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests served at once; more are refused.
const MAX_AT_ONCE: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Came through the network; the Unix socket is the owner's alone.
    pub(crate) is_network: bool,
}

pub(crate) type Handler = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// Listens until dropped.
pub(crate) struct Server {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    run: OwnedFd,
    network: Option<SocketAddr>,
    token_file: PathBuf,
}

impl Server {
    /// Listens in the state directory, whose daemon lock the caller holds, and at `network`, which must be a loopback address.
    pub(crate) fn start(state: &Path, network: Option<SocketAddr>, handler: &Handler) -> Result<Self> {
        let run = run_directory(state)?;
        let unix = listen(&run).map_err(|source| DaemonError::Listen { at: shown(&path_of(state)), source })?;
        let stopping = Arc::new(AtomicBool::new(false));
        let token_file = Token::path_of(state);
        let mut server = Self { stopping, threads: Vec::new(), run, network: None, token_file };
        server.serve(move || Ok(unix.accept()?.0), None, handler)?;
        if let Some(address) = network {
            if !address.ip().is_loopback() {
                return Err(DaemonError::NotLoopback { address });
            }
            let token = Token::of(state)?;
            let listener =
                TcpListener::bind(address).map_err(|source| DaemonError::Listen { at: address.to_string(), source })?;
            server.network = Some(listener.local_addr()?);
            server.serve(move || Ok(listener.accept()?.0), Some(token), handler)?;
        }
        Ok(server)
    }

    /// Where metrics are told over the network, with the port that was given for port 0.
    pub(crate) fn network(&self) -> Option<SocketAddr> {
        self.network
    }

    /// What who asks over the network must show.
    pub(crate) fn token_file(&self) -> &Path {
        &self.token_file
    }

    fn serve<S: Stream>(
        &mut self,
        mut accept: impl FnMut() -> std::io::Result<S> + Send + 'static,
        token: Option<Token>,
        handler: &Handler,
    ) -> Result<()> {
        let token = token.map(Arc::new);
        let (stopping, handler) = (Arc::clone(&self.stopping), Arc::clone(handler));
        let busy = Arc::new(AtomicUsize::new(0));
        let accepting = move || {
            loop {
                let accepted = accept();
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = accepted else {
                    // Without descriptors the listener stays readable; do not spin on it.
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                };
                if busy.fetch_add(1, Ordering::SeqCst) >= MAX_AT_ONCE {
                    busy.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (handler, serving, token) = (Arc::clone(&handler), Arc::clone(&busy), token.clone());
                let serve = move || {
                    answer(stream, token.as_deref(), &handler);
                    serving.fetch_sub(1, Ordering::SeqCst);
                };
                if std::thread::Builder::new().name("stripewise-ask".into()).spawn(serve).is_err() {
                    busy.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        let thread = std::thread::Builder::new().name("stripewise-listen".into()).spawn(accepting);
        self.threads.push(thread.map_err(|source| DaemonError::Thread { source })?);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Each listener is woken by a last caller.
        let _ = connect(&self.run);
        if let Some(address) = self.network {
            let _ = TcpStream::connect(address);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = rustix::fs::unlinkat(&self.run, NAME, rustix::fs::AtFlags::empty());
    }
}

trait Stream: Read + Write + Send + 'static {
    fn limit(&self, patience: Duration) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, patience: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Stream for TcpStream {
    fn limit(&self, patience: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// With a token to show where it came over the network.
fn answer(mut stream: impl Stream, token: Option<&Token>, handler: &Handler) {
    if stream.limit(PATIENCE).is_err() {
        return;
    }
    let answered = read_head(&mut stream).and_then(|head| answer_to(&head, token, handler));
    let response = answered.unwrap_or_else(|| Response::text(400, "not a request\n"));
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status,
        reason(response.status),
        response.content_type,
        response.body.len()
    );
    // Who asked may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(response.body.as_bytes()));
}

/// Up to the empty line, also of what is no request: a connection that is closed with bytes unread is reset, and the peer may not see the
/// answer.
fn read_head(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let length = stream.read(&mut part).ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&part[..length]);
        if head.len() > MAX_HEAD_BYTES {
            return None;
        }
    }
    Some(head)
}

/// `None` if the bytes are not the head of a request.
fn answer_to(head: &[u8], token: Option<&Token>, handler: &Handler) -> Option<Response> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    if !parsed.parse(head).ok()?.is_complete() {
        return None;
    }
    let request = request_of(&parsed, token.is_some())?;
    Some(token.and_then(|token| token.refusal(parsed.headers)).unwrap_or_else(|| handler(&request)))
}

/// The query of a target is not looked at. A target that is no path is for a proxy, which this is not.
fn request_of(parsed: &httparse::Request, is_network: bool) -> Option<Request> {
    let (method, target) = (parsed.method?.to_owned(), parsed.path?);
    let path = target.split('?').next().unwrap_or(target);
    path.starts_with('/').then(|| Request { method, path: path.to_owned(), is_network })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        _ => "Service Unavailable",
    }
}

/// Where the daemon of the cluster listens.
pub(crate) fn path_of(state: &Path) -> PathBuf {
    state.join("run").join(NAME)
}

/// Through a descriptor, since a socket's name has at most 107 bytes and a path any number.
fn run_directory(state: &Path) -> Result<OwnedFd> {
    let path = state.join("run");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(&path, flags, Mode::empty()).on("open", &path)?)
}

fn below(run: &OwnedFd, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", run.as_raw_fd()).into()
}

fn listen(run: &OwnedFd) -> std::io::Result<UnixListener> {
    // It gets its name once nobody else may connect.
    let temporary = format!("{NAME}.{}", std::process::id());
    let _ = std::fs::remove_file(below(run, &temporary));
    let listener = UnixListener::bind(below(run, &temporary))?;
    std::fs::set_permissions(below(run, &temporary), std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(below(run, &temporary), below(run, NAME))?;
    Ok(listener)
}

/// The socket must be of the user whose directory `run` is.
fn connect(run: &OwnedFd) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(below(run, NAME))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    match rustix::fs::fstat(run)?.st_uid == peer {
        true => Ok(stream),
        false => Err(std::io::ErrorKind::PermissionDenied.into()),
    }
}

/// Asks the cluster's daemon; `None` when none answers.
pub(crate) fn ask(state: &Path, method: &str, path: &str) -> Option<Response> {
    let run = run_directory(state).ok()?;
    let mut stream = connect(&run).ok()?;
    stream.limit(PATIENCE).ok()?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: daemon\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut text).ok()?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = parsed.parse(text.as_bytes()).ok()? else { return None };
    Some(Response::text(parsed.code?, text.get(head_bytes..)?))
}

/// Process id of the cluster's daemon, if one answers.
pub(crate) fn daemon_of(state: &Path) -> Option<u32> {
    ask(state, "GET", "/process")?.body.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the handler sees of these bytes; `None` if they are refused.
    fn seen(bytes: &[u8]) -> Option<Request> {
        let found = Arc::new(std::sync::Mutex::new(None));
        let sink = Arc::clone(&found);
        let handler: Handler = Arc::new(move |request| {
            *sink.lock().unwrap() = Some(request.clone());
            Response::text(200, "")
        });
        let head = read_head(&mut &*bytes)?;
        assert_eq!(answer_to(&head, None, &handler)?.status, 200);
        found.lock().unwrap().take()
    }

    #[test]
    fn requests_are_read_and_nonsense_refused() {
        let request =
            |method: &str, path: &str| Some(Request { method: method.into(), path: path.into(), is_network: false });
        assert_eq!(seen(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), request("GET", "/metrics"));
        assert_eq!(seen(b"POST /phase/a?b=c HTTP/1.0\r\n\r\n"), request("POST", "/phase/a"));
        let heads =
            ["", "GET", "GET /", "GET / HTTP/2", "GET metrics HTTP/1.1", "GET / HTTP/1.1 more", "G E T / HTTP/1.1"];
        for head in heads {
            assert_eq!(seen(format!("{head}\r\n\r\n").as_bytes()), None, "{head}");
        }
        assert_eq!(seen(b"GET / HTTP/1.1\r\nno colon\r\n\r\n"), None);
        assert_eq!(seen(b"GET / HTTP/1.1\r\n"), None, "truncated");
    }

    /// Answered after three bytes, a client that writes piece by piece met a reset connection instead of the refusal.
    #[test]
    fn a_head_is_read_to_its_end_before_it_is_refused() {
        struct ByteByByte<'a>(&'a [u8]);
        impl Read for ByteByByte<'_> {
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                (&mut self.0).take(1).read(into)
            }
        }
        let head = b"G E T / HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut pieces = ByteByByte(head);
        assert_eq!(read_head(&mut pieces).as_deref(), Some(&head[..]));
        assert!(pieces.0.is_empty());
    }

    #[test]
    fn long_heads_and_many_headers_are_refused() {
        let of = |headers: &str| seen(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes());
        assert!(of(&"A: b\r\n".repeat(MAX_HEADERS)).is_some());
        assert_eq!(of(&"A: b\r\n".repeat(MAX_HEADERS + 1)), None, "many headers");
        assert!(of(&format!("A: {}\r\n", "b".repeat(MAX_HEAD_BYTES / 2))).is_some());
        assert_eq!(of(&format!("A: {}\r\n", "b".repeat(MAX_HEAD_BYTES))), None, "a long header");
        let endless = "A".repeat(100 * MAX_HEAD_BYTES);
        let mut rest = endless.as_bytes();
        assert_eq!(read_head(&mut rest), None);
        assert!(rest.len() > 98 * MAX_HEAD_BYTES, "no more is read than a head may have");
    }
}
