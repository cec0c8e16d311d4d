//! Who may ask the daemon over the network: who can read the owner's token.

use super::answer::Response;
use super::error::{DaemonError, Result};
use crate::paths::OnPath as _;
use httparse::Header;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use stripewise_store::state::StateDirectory;

const FILE: &str = "daemon.token";
/// 256 random bits in hexadecimal digits.
const DIGITS: usize = 64;

/// A secret in a file (0600) of the state directory. It stays from daemon to daemon, so that what collects metrics is told it once.
pub(super) struct Token(String);

impl Token {
    /// Makes it if there is none. The caller holds the daemon's lock.
    pub(super) fn of(state: &Path) -> Result<Self> {
        let path = Self::path_of(state);
        let state = StateDirectory::open(state)?;
        let mut file = File::from(state.open_file(FILE, OFlags::RDWR | OFlags::CREATE)?);
        let mut text = String::new();
        (&mut file).take(2 * DIGITS as u64).read_to_string(&mut text).on("read", &path)?;
        let found = text.trim_end();
        if found.len() == DIGITS && found.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self(found.to_owned()));
        }
        let mut bytes = [0; DIGITS / 2];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|source| DaemonError::Random { source })?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        file.set_len(0).and_then(|()| file.rewind()).on("write", &path)?;
        writeln!(file, "{token}").and_then(|()| file.sync_all()).on("write", &path)?;
        Ok(Self(token))
    }

    pub(super) fn path_of(state: &Path) -> PathBuf {
        state.join(FILE)
    }

    /// Why a request with these headers is not answered, if it is not.
    pub(super) fn refusal(&self, headers: &[Header]) -> Option<Response> {
        if !value_of(headers, "host").is_some_and(is_loopback) {
            return Some(Response::text(403, "ask for localhost, 127.0.0.1 or [::1]\n"));
        }
        let shown = value_of(headers, "authorization").and_then(|value| value.strip_prefix("Bearer "));
        if !shown.is_some_and(|shown| is_equal(shown.as_bytes(), self.0.as_bytes())) {
            return Some(Response::text(401, "send the token of the state directory: Authorization: Bearer TOKEN\n"));
        }
        None
    }
}

/// The only value of the header; of two, neither is to be trusted.
fn value_of<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a str> {
    let mut found = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let value = found.next().filter(|_| found.next().is_none())?.value;
    std::str::from_utf8(value).ok().map(str::trim)
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

/// In a time that tells nothing of where they differ.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let difference = left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0 && left.len() == right.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every user of the host reached the port, and so did web pages whose name leads to 127.0.0.1.
    #[test]
    fn over_the_network_only_the_token_and_a_loopback_name_get_an_answer() {
        let directory = tempfile::tempdir().unwrap();
        StateDirectory::make(directory.path()).unwrap();
        let token = Token::of(directory.path()).unwrap();
        assert_eq!(Token::of(directory.path()).unwrap().0, token.0, "it stays");
        let mode = std::fs::metadata(Token::path_of(directory.path())).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        let status = |headers: &[(&str, &str)]| {
            let headers: Vec<Header> =
                headers.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
            token.refusal(&headers).map(|refusal| refusal.status)
        };
        let bearer = |token: &str| format!("Bearer {token}");
        let right = bearer(&token.0);
        for host in ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:80", "[::1]"] {
            assert_eq!(status(&[("Host", host), ("authorization", &right)]), None, "{host}");
        }
        for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost:", ""] {
            assert_eq!(status(&[("Host", host), ("authorization", &right)]), Some(403), "{host}");
        }
        for shown in ["", "x", &token.0[1..], &format!("{}0", token.0), &"0".repeat(DIGITS)] {
            assert_eq!(status(&[("host", "localhost"), ("Authorization", &bearer(shown))]), Some(401), "{shown}");
        }
        assert_eq!(status(&[("Host", "localhost"), ("Host", "evil"), ("Authorization", &right)]), Some(403));
        assert_eq!(status(&[("Host", "localhost")]), Some(401));
        assert_eq!(status(&[("Authorization", &right)]), Some(403));
    }
}
