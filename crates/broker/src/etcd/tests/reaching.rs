//! Endpoints, certificates and refusals.

use super::server::{Etcd, directory};
use crate::coordination::Coordinator;
use crate::coordination::tests::{all, elected, key, put_all, skip};
use crate::etcd::{EtcdCoordinator, EtcdOptions, TlsFiles};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Nobody listens at port 1.
const DEAD: &str = "http://127.0.0.1:1";

fn said_of(options: &EtcdOptions) -> String {
    match EtcdCoordinator::new(options, "c") {
        Ok(coordinator) => coordinator.master().expect_err("it cannot be reached").to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn endpoints_that_are_none_are_named() {
    let cases = [
        ("127.0.0.1:2379", "no scheme"),
        ("http://", "\"http://\""),
        ("http://host", "no port"),
        ("unix:///run/etcd", "invalid"),
        ("http://host:2379/v3", "the path /v3"),
    ];
    for (endpoint, expected) in cases {
        let said = said_of(&EtcdOptions::new(vec![endpoint.to_owned()]));
        assert!(said.contains(expected) && said.contains("http://HOST:PORT"), "{endpoint}: {said}");
    }
    assert!(said_of(&EtcdOptions::new(Vec::new())).contains("name at least one"));
    let dead = EtcdOptions { patience: Duration::ZERO, ..EtcdOptions::new(vec![DEAD.to_owned()]) };
    let said = said_of(&dead);
    assert!(said.contains(DEAD) && said.contains("endpoint health"), "{said}");
}

#[test]
fn endpoints_are_tried_in_turn() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let endpoints = vec![DEAD.to_owned(), etcd.endpoint(), format!("{DEAD}/")];
    let coordinator = EtcdCoordinator::new(&EtcdOptions { endpoints, ..etcd.options() }, "c").unwrap();
    let master = elected(&coordinator, "one");
    let store = master.table();
    assert!(store.commit(&put_all(0..300, b"1")).unwrap());
    assert_eq!(all(store.as_ref()).len(), 300);
}

#[test]
fn an_etcd_without_space_says_so_and_what_to_do() {
    let Some(etcd) = Etcd::start(&["--quota-backend-bytes", "4000000"]) else { return };
    let coordinator = etcd.coordinator("full");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let filled = (0..100).find_map(|number| store.put(&key(number), &vec![1; 500_000]).err()).expect("it fills up");
    let said = filled.to_string();
    assert!(filled.is_full(), "{said}");
    for part in [&etcd.endpoint(), "NOSPACE", "defrag", "alarm disarm", "--quota-backend-bytes"] {
        assert!(said.contains(part), "{said}");
    }
    // What is there can be read.
    assert_eq!(store.get(&key(0)).unwrap(), Some(vec![1; 500_000]));
}

#[test]
fn an_etcd_that_takes_less_in_a_transaction_is_refused_by_name() {
    let Some(etcd) = Etcd::start(&["--max-txn-ops", "16"]) else { return };
    let coordinator = etcd.coordinator("small");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let said = store.commit(&put_all(0..100, b"1")).unwrap_err().to_string();
    assert!(said.contains("--max-txn-ops 128") && said.contains(&etcd.endpoint()), "{said}");
    assert!(store.commit(&put_all(0..10, b"1")).unwrap());
}

/// Makes an authority, and certificates that it signs for a server on loopback and for a client.
fn make_certificates(directory: &Path) -> std::io::Result<()> {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output()?;
        assert!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
        Ok::<_, std::io::Error>(())
    };
    std::fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1\n")?;
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {new_key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"))?;
    openssl(&format!("req -x509 {new_key} -keyout other.key -out other.pem -days 2 -subj /CN=other"))?;
    for name in ["server", "client"] {
        openssl(&format!("req {new_key} -keyout {name}.key -out {name}.csr -subj /CN={name}"))?;
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile names"
        ))?;
    }
    Ok(())
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let directory = directory();
    if let Err(error) = make_certificates(directory.path()) {
        return skip(&format!("certificates cannot be made (openssl: {error})"));
    }
    let Some(etcd) = Etcd::start_in(directory, true, &["--client-cert-auth"]) else { return };
    let file = |name: &str| etcd.directory().join(name);
    let with = |ca: &str, certificate: Option<(&str, &str)>, patience| {
        let certificate = certificate.map(|(certificate, key)| (file(certificate), file(key)));
        EtcdOptions { tls: TlsFiles { ca: Some(file(ca)), certificate }, patience, ..etcd.options() }
    };
    let client = Some(("client.pem", "client.key"));
    let trusted = EtcdCoordinator::new(&with("ca.pem", client, etcd.options().patience), "c").unwrap();
    let master = elected(&trusted, "one");
    let store = master.table();
    store.put(&key(1), b"1").unwrap();
    assert_eq!(trusted.table().get(&key(1)).unwrap(), Some(b"1".to_vec()));

    let said = said_of(&with("other.pem", client, Duration::ZERO));
    assert!(said.contains(&etcd.endpoint()) && said.contains("certificate"), "{said}");
    let said = said_of(&with("ca.pem", None, Duration::ZERO));
    assert!(said.contains(&etcd.endpoint()), "{said}");
    assert!(said_of(&with("missing.pem", client, Duration::ZERO)).contains("missing.pem"));
    let said = said_of(&with("ca.pem", Some(("client.pem", "client.pem")), Duration::ZERO));
    assert!(said.contains("client.pem") && said.contains("private key"), "{said}");
}

/// All of it: what was not read when a connection is closed may take the answer with it.
fn read_request(stream: &mut TcpStream) {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    let is_whole = |text: &str| {
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        body.len() >= length.unwrap_or(0)
    };
    while !is_whole(&text) {
        match stream.read(&mut bytes) {
            Ok(read) if read > 0 => text += &String::from_utf8_lossy(&bytes[..read]),
            _ => return,
        }
    }
}

/// An endpoint that takes every request and gives this answer, or none.
fn answering(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            read_request(&mut stream);
            if let Some(body) = answer {
                let head = format!(
                    "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + body).as_bytes());
            }
        }
    });
    endpoint
}

/// Whoever relies on it that nothing is under way would be wrong if another endpoint had got the request before.
#[test]
fn that_etcd_has_no_space_is_said_only_if_no_endpoint_may_have_taken_the_request() {
    const FULL: &str = r#"{"code":8,"message":"etcdserver: mvcc: database space exceeded","details":[]}"#;
    let (full, silent) = (answering(Some(FULL)), answering(None));
    let error_of = |endpoints: &[&str]| {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        let coordinator = EtcdCoordinator::new(&EtcdOptions::new(endpoints), "c").unwrap();
        coordinator.table().get(&key(1)).unwrap_err()
    };
    for endpoints in [&[full.as_str()][..], &[DEAD, &full], &[&full, &silent]] {
        let error = error_of(endpoints);
        assert!(error.is_full(), "{endpoints:?}: {error}");
    }
    let error = error_of(&[&silent, &full]);
    let said = error.to_string();
    assert!(!error.is_full() && said.contains(&silent) && said.contains("NOSPACE"), "{said}");
}
