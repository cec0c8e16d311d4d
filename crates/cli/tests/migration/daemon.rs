//! The daemon itself: one of them, its end, its socket.

use crate::serving::{Daemon, data_of, place_with_data, spans, status, until_copying, whole};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

#[test]
fn a_second_daemon_is_refused_and_a_dead_one_replaced() {
    let (place, data) = place_with_data(3);
    let first = Daemon::serving(&place, &["--migrate-bandwidth", "16KiB"]);
    let said = place.say(&["daemon"]);
    let expected =
        format!("stripewise daemon: process {} is the daemon of HERE/stripewise-state already", first.process());
    assert!(said.status == 2 && said.err.starts_with(&expected), "{}", said.err);
    place.done(&["restripe", "data", "--layout", "<0B,64KiB>", "--background"]);
    until_copying(&place);
    let process = first.process();
    first.end("-KILL");
    // Nobody waits for the dead one, and what it had begun never was.
    assert_eq!(spans(&place), whole(3, "<64KiB,0B>"));
    let second = Daemon::start(&place, &[]);
    second.hear(&format!("process {process}, ended without a word; taking its place"));
    second.hear("serving ");
    assert_eq!(status(&place)["totals"]["bandwidth"], "auto");
    place.done(&["restripe", "data", "--layout", "<0B,64KiB>"]);
    assert_eq!(spans(&place), whole(3, "<0B,64KiB>"));
    assert_eq!(second.end("-TERM"), (Some(0), Vec::new()));
    assert!(place.read("stripewise-state/daemon").is_empty(), "it said that it ended");
    let third = Daemon::serving(&place, &["--migrate-bandwidth", "16KiB"]);
    place.done(&["restripe", "data", "--layout", "<64KiB,0B>", "--background"]);
    until_copying(&place);
    let (status, said) = third.end("-TERM");
    assert_eq!(status, Some(0));
    assert!(
        said.len() == 1 && said[0].contains("3 moves are not ended; what is not committed is cancelled"),
        "{said:?}"
    );
    assert_eq!(spans(&place), whole(3, "<0B,64KiB>"));
    assert!(data_of(&place) == data);
    assert_eq!(place.json(&["check"])["findings"].as_array().unwrap().len(), 0);
}

/// What a daemon orders beside another broker survives that one.
#[test]
fn moves_go_on_when_the_broker_that_had_them_ends() {
    crate::support::preload();
    let (place, data) = place_with_data(3);
    // It is the broker until its input ends.
    let mut run = place.command(&["run", "--", "sh", "-c", "echo ready; cat"]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    run.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let daemon = Daemon::start(&place, &["--migrate-bandwidth", "16KiB"]);
    daemon.hear("another process serves");
    place.done(&["restripe", "data", "--layout", "<0B,64KiB>", "--background"]);
    until_copying(&place);
    place.done(&["migrate", "pause"]);
    let metric = || {
        let text = ask_unix(&place, "GET", "/metrics");
        text.lines().find_map(|line| line.strip_prefix("stripewise_serving ").map(str::to_owned))
    };
    assert_eq!(metric().as_deref(), Some("0"));
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
    crate::serving::until("a new broker with the old orders", || {
        status(&place)["totals"]["left_bytes"].as_u64() > Some(0)
    });
    crate::serving::until("the metric of the new broker", || metric().as_deref() == Some("1"));
    let totals = status(&place)["totals"].clone();
    assert_eq!(totals["bandwidth"], "16KiB/s");
    assert_eq!(totals["paused"], "by `stripewise migrate pause`", "a pause goes on as well");
    place.done(&["migrate", "resume"]);
    place.done(&["migrate", "bandwidth", "unlimited"]);
    place.done(&["migrate", "wait"]);
    assert_eq!(spans(&place), whole(3, "<0B,64KiB>"));
    assert!(data_of(&place) == data);
}

fn ask_unix(place: &crate::support::Place, method: &str, path: &str) -> String {
    let socket = place.path("stripewise-state/run/daemon.sock");
    exchange(std::os::unix::net::UnixStream::connect(socket).unwrap(), method, path)
}

fn exchange(stream: impl Read + Write, method: &str, path: &str) -> String {
    exchange_with(stream, method, path, "Host: test\r\n")
}

fn exchange_with(mut stream: impl Read + Write, method: &str, path: &str, headers: &str) -> String {
    write!(stream, "{method} {path} HTTP/1.1\r\n{headers}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_are_told_on_both_sockets_and_phases_on_one() {
    let (place, _) = place_with_data(3);
    let daemon = Daemon::start(&place, &["--metrics", "127.0.0.1:0"]);
    let line = daemon.hear("metrics at ");
    let address = line.split("http://").nth(1).unwrap().split("/metrics").next().unwrap().to_owned();
    daemon.hear("serving ");
    place.done(&["restripe", "data", "--layout", "<0B,64KiB>"]);
    let token = String::from_utf8(place.read("stripewise-state/daemon.token")).unwrap();
    let headers = format!("Host: {address}\r\nAuthorization: Bearer {}\r\n", token.trim_end());
    let ask = |method: &str, path: &str| exchange_with(TcpStream::connect(&address).unwrap(), method, path, &headers);
    for (headers, status) in [("Host: localhost\r\n", 401), (&headers.replace("127.0.0.1", "evil.example"), 403)] {
        let text = exchange_with(TcpStream::connect(&address).unwrap(), "GET", "/metrics", headers);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")) && !text.contains("stripewise_"), "{text}");
    }
    // A move is over before its bytes are counted.
    crate::serving::until("all bytes are counted", || {
        ask("GET", "/metrics").contains("stripewise_moved_bytes_total 3145728")
    });
    let text = ask("GET", "/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
    for line in [
        "stripewise_moves_ended_total{state=\"done\"} 3",
        "stripewise_moved_bytes_total 3145728",
        "stripewise_moves{state=\"queued\"} 0",
        "stripewise_server_promised_bytes{class=\"ssd\",server=\"s0\"} 1572864",
        "stripewise_server_room_bytes{class=\"ssd\",server=\"s0\"} 67108864",
        "stripewise_server_objects{class=\"hdd\",server=\"h0\"} 0",
        "stripewise_agent_master 1",
        "stripewise_agent_moves_ended_total{state=\"done\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
    assert_eq!(ask_unix(&place, "GET", "/process").lines().last(), Some(daemon.process().to_string().as_str()));
    for (method, path, status) in
        [("POST", "/phase/a", 404), ("GET", "/", 404), ("POST", "/metrics", 405), ("G E T", "/", 400)]
    {
        let text = ask(method, path);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {text}");
    }
    let text = ask_unix(&place, "POST", "/phase/a");
    assert!(text.starts_with("HTTP/1.1 409 ") && text.contains("no plan is followed"), "{text}");
    daemon.end("-TERM");
    assert!(!place.path("stripewise-state/run/daemon.sock").exists());
}
