//! Caveats that the lines themselves show, and those of classes.

use super::measure::LineSamples;
use super::write_classes::Buffered;
use stripewise_layout::{Direction, Order, Server, ServerClass};
use stripewise_model::fit::Fit;
use stripewise_model::{Caveat, ServerProfile};
use stripewise_store::server::rados::RadosUrl;

/// A fit worse than this is pointed out.
const POOR_R2: f64 = 0.95;
const POOR_SPREAD: f64 = 0.25;

/// Requests that took so much longer in total than by their line are more than outliers.
const SLOW_IN_TOTAL: f64 = 1.5;

/// A disk's random reads start with a seek: at least so much later than sequential ones.
const MIN_SEEK_RATIO: f64 = 1.5;

/// Classes nearer than this are hardly worth telling apart.
const MIN_CLASS_RATIO: f64 = 1.3;

/// The request by which classes are compared.
const COMPARED_BYTES: f64 = 65_536.0;

/// Caveats of one server's lines, beside those `known` from its streams, which explain a line that times do not follow.
pub(super) fn of_lines(
    server: &str,
    lines: &[(Direction, Order, Fit)],
    samples: &[LineSamples],
    known: &[Caveat],
) -> Vec<Caveat> {
    let is_limited = |direction: Direction| {
        known.iter().any(|caveat| {
            matches!(caveat, Caveat::LimitedRate { direction: of, .. } | Caveat::LimitedRequests { direction: of, .. } if *of == direction)
        })
    };
    let mut caveats = Vec::new();
    for ((direction, order, fit), measured) in lines.iter().zip(samples) {
        let (server, direction, order) = (server.to_owned(), *direction, *order);
        let line = fit.line;
        let expected_s: f64 = measured.samples.iter().map(|sample| line.seconds(sample.bytes as f64)).sum();
        let factor = measured.samples.iter().map(|sample| sample.seconds).sum::<f64>() / expected_s;
        if factor > SLOW_IN_TOTAL {
            caveats.push(Caveat::SlowRequests { server, direction, order, factor });
        } else if (line.r2 < POOR_R2 || line.spread > POOR_SPREAD) && !is_limited(direction) {
            caveats.push(Caveat::NoLine { server, direction, order, r2: line.r2, spread: line.spread });
        }
    }
    caveats
}

/// The caveat of a server that its agent slows down.
pub(super) fn of_throttle(server: &Server) -> Option<Caveat> {
    let slowness = RadosUrl::parse(&server.url).ok()?.throttle?;
    Some(Caveat::Throttled { server: server.name.clone(), to: slowness.to_string() })
}

/// Caveats of buffered writes.
pub(super) fn of_buffered(server: &str, buffered: &Buffered) -> Vec<Caveat> {
    let caveat = |&(order, [buffered_bytes_per_s, direct_bytes_per_s]): &(Order, [f64; 2])| Caveat::SlowBuffered {
        server: server.to_owned(),
        order,
        buffered_bytes_per_s,
        direct_bytes_per_s,
    };
    buffered.doubted.iter().map(caveat).collect()
}

/// Caveats whether servers are what their classes say.
pub(super) fn of_classes(servers: &[ServerProfile]) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    for server in servers.iter().filter(|server| server.class == ServerClass::Hdd) {
        let (random_s, sequential_s) = (server.read_random.alpha_s, server.read_sequential.alpha_s);
        // Where both begin at once there is no seek either.
        let ratio = if random_s == sequential_s { 1.0 } else { random_s / sequential_s };
        if ratio < MIN_SEEK_RATIO {
            caveats.push(Caveat::NoSeeks { server: server.name.clone(), ratio });
        }
    }
    let time_s = |server: &&ServerProfile| {
        server.read_random.seconds(COMPARED_BYTES) + server.write_random.seconds(COMPARED_BYTES)
    };
    let of_class = |class| servers.iter().filter(move |server| server.class == class);
    let fastest = of_class(ServerClass::Hdd).min_by(|a, b| time_s(a).total_cmp(&time_s(b)));
    let slowest = of_class(ServerClass::Ssd).max_by(|a, b| time_s(a).total_cmp(&time_s(b)));
    if let (Some(hdd), Some(ssd)) = (fastest, slowest) {
        let ratio = time_s(&hdd) / time_s(&ssd);
        if ratio < MIN_CLASS_RATIO {
            caveats.push(Caveat::AlikeClasses { hdd: hdd.name.clone(), ssd: ssd.name.clone(), ratio });
        }
    }
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Line;
    use stripewise_model::fit::{Sample, fit};

    fn line(alpha_s: f64) -> Line {
        Line { alpha_s, beta_s_per_byte: 1e-8, r2: 1.0, spread: 0.0, samples: 22 }
    }

    fn server(name: &str, class: ServerClass, sequential_s: f64, random_s: f64) -> ServerProfile {
        ServerProfile {
            name: name.to_owned(),
            class,
            read_sequential: line(sequential_s),
            read_random: line(random_s),
            write_sequential: line(sequential_s),
            write_random: line(random_s),
            buffered_write: None,
            synchronous_write: None,
            flush_wait: None,
        }
    }

    /// One request in five waits a second: the line does not see it, the sum does.
    #[test]
    fn requests_that_the_line_misses_are_seen_in_the_sum() {
        let sample = |number: u64| {
            let bytes = 4096 << (number % 11);
            Sample { bytes, seconds: if number.is_multiple_of(5) { 1.0 } else { 1e-4 + bytes as f64 * 1e-9 } }
        };
        let of = |direction, samples: Vec<Sample>| LineSamples { direction, order: Order::Random, samples };
        let slow = of(Direction::Write, (1..100).map(sample).collect());
        let even = of(Direction::Read, (1..100).filter(|number: &u64| !number.is_multiple_of(5)).map(sample).collect());
        let lines: Vec<_> = [&slow, &even].map(|line| (line.direction, line.order, fit(&line.samples).unwrap())).into();
        let caveats = of_lines("s0", &lines, &[slow, even], &[]);
        assert!(
            matches!(&caveats[..], [Caveat::SlowRequests { direction: Direction::Write, factor, .. }] if *factor > 10.0),
            "{caveats:?}"
        );
    }

    #[test]
    fn classes_that_are_alike_and_disks_without_seeks_are_named() {
        let disk = server("hdd0", ServerClass::Hdd, 1e-4, 5e-3);
        let flash = server("ssd0", ServerClass::Ssd, 1e-4, 1e-4);
        assert_eq!(of_classes(&[disk.clone(), flash.clone()]), []);
        let virtual_disk = server("hdd1", ServerClass::Hdd, 1e-4, 1.1e-4);
        let found = of_classes(&[disk, virtual_disk, flash]);
        assert!(
            matches!(&found[..], [Caveat::NoSeeks { server, .. }, Caveat::AlikeClasses { hdd, ssd, .. }]
                if server == "hdd1" && hdd == "hdd1" && ssd == "ssd0"),
            "{found:?}"
        );
        let memory = server("hdd2", ServerClass::Hdd, 0.0, 0.0);
        assert!(
            matches!(&of_classes(&[memory])[..], [Caveat::NoSeeks { ratio: 1.0, .. }]),
            "nothing begins in no time"
        );
    }
}
