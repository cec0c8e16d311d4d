//! Descriptions: texts on servers with the layouts of files, so that files can be assembled without the mapping table.
//!
//! The name of an object does not give the layout, and data has no header. Therefore each server that holds objects of a file
//! also holds a text about the file: a line for each placement or move, appended before the change is committed, and durable no
//! later than the data that it describes. Every line has a *sequence*: of all lines about a region, on whichever servers, the one
//! with the highest sequence gives the region's place. A described change may not have happened, if the broker died before the
//! commit; its successor then appends a line with a higher sequence before any process writes there.
//!
//! | line | what |
//! |---|---|
//! | `file SEQUENCE FILE CLUSTER REGION_BYTES MODE UID GID PATH` | the file when the text was begun; the mode is octal, and the path's bytes other than letters, digits and `/._-` are written as %XX |
//! | `place SEQUENCE REGION GENERATION SIZE SERVER:STRIPE,...` | the place of a region; the file had at least this size |
//! | `cut SEQUENCE SIZE` | the file was truncated to this size: regions beyond are gone, and until a later `size` the file has exactly this size |
//! | `size SEQUENCE SIZE least` | the file had this size and may have grown since, up to the end of its objects |
//! | `size SEQUENCE SIZE exact` | the file had this size; bytes beyond it on servers are not part of it |
//!
//! Every line ends with a space and the first 16 hexadecimal digits of the SHA-256 of the text before it. A line without a line
//! feed was torn by a power failure; any other line with a wrong digest is damaged. A sequence is two numbers with a point
//! between: the broker's number, and a count of that broker.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use stripewise_layout::{FileId, Generation, RegionGeometry, RegionIndex};
use stripewise_store::server::FIRST_LINE_OF_DESCRIPTIONS as FIRST_LINE;
use stripewise_store::shared::control::MAX_REGIONS;

/// Which of two lines is the later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Sequence {
    /// Higher with every broker that describes anything.
    pub broker: u64,
    pub step: u64,
}

/// Of a file, beside its regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    pub file: FileId,
    pub cluster: String,
    pub region_bytes: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// A hint.
    pub path: String,
}

/// Where a region lies: names of servers, with stripe sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub generation: Generation,
    pub stripes: Vec<(String, u32)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    File(Head),
    Place {
        region: RegionIndex,
        place: Place,
        size_bytes: u64,
    },
    Truncated {
        size_bytes: u64,
    },
    Size {
        size_bytes: u64,
        /// Objects may be longer.
        is_exact: bool,
    },
}

fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().take(8).fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// The line as it is appended. It begins with a line feed, so that it stands alone behind one that was torn.
#[must_use]
pub fn line(sequence: Sequence, line: &Line) -> String {
    let at = format!("{}.{}", sequence.broker, sequence.step);
    let text = match line {
        Line::File(head) => format!(
            "file {at} {} {} {} {:o} {} {} {}",
            head.file,
            head.cluster,
            head.region_bytes,
            head.mode,
            head.uid,
            head.gid,
            quoted(&head.path)
        ),
        Line::Place { region, place, size_bytes } => {
            let stripes: Vec<String> =
                place.stripes.iter().map(|(server, bytes)| format!("{server}:{bytes}")).collect();
            format!("place {at} {region} {} {size_bytes} {}", place.generation, stripes.join(","))
        }
        Line::Truncated { size_bytes } => format!("cut {at} {size_bytes}"),
        Line::Size { size_bytes, is_exact } => {
            format!("size {at} {size_bytes} {}", if *is_exact { "exact" } else { "least" })
        }
    };
    format!("\n{text} {}\n", checksum(&text))
}

fn quoted(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    path.bytes().fold(String::new(), |mut text, byte| {
        match is_plain(byte) {
            true => text.push(char::from(byte)),
            false => drop(write!(text, "%{byte:02X}")),
        }
        text
    })
}

fn unquoted(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// As those of clusters and plans: who puts files together counts in regions.
fn is_region_size(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(4096)
}

fn parse(text: &str) -> Option<(Sequence, Line)> {
    let (text, sum) = text.rsplit_once(' ')?;
    let words: Vec<&str> = text.split(' ').collect();
    let (broker, step) = words.get(1)?.split_once('.')?;
    let sequence = Sequence { broker: broker.parse().ok()?, step: step.parse().ok()? };
    let line = match words.as_slice() {
        _ if sum != checksum(text) => None,
        ["file", _, file, cluster, region_bytes, mode, uid, gid, path] => Some(Line::File(Head {
            file: file.parse().ok()?,
            cluster: (*cluster).to_owned(),
            region_bytes: region_bytes.parse().ok().filter(|bytes| is_region_size(*bytes))?,
            mode: u32::from_str_radix(mode, 8).ok()?,
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            path: unquoted(path)?,
        })),
        ["place", _, region, generation, size, stripes] => {
            let stripe = |text: &str| {
                let (server, bytes) = text.split_once(':')?;
                Some((server.to_owned(), bytes.parse().ok()?))
            };
            let stripes = stripes.split(',').map(stripe).collect::<Option<Vec<_>>>()?;
            let place = Place { generation: Generation(generation.parse().ok()?), stripes };
            let region = RegionIndex(region.parse().ok().filter(|region| *region < MAX_REGIONS)?);
            Some(Line::Place { region, place, size_bytes: size.parse().ok()? })
        }
        ["cut", _, size] => Some(Line::Truncated { size_bytes: size.parse().ok()? }),
        ["size", _, size, kind @ ("exact" | "least")] => {
            Some(Line::Size { size_bytes: size.parse().ok()?, is_exact: *kind == "exact" })
        }
        _ => None,
    };
    line.map(|line| (sequence, line))
}

/// What the descriptions of one file say together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Described {
    head: Option<(Sequence, Head)>,
    places: BTreeMap<RegionIndex, (Sequence, Place)>,
    truncations: Vec<(Sequence, u64)>,
    /// Of lines of all kinds.
    sizes: Vec<(Sequence, u64)>,
    /// The last line that says whether objects may be longer, and whether they may.
    exact: (Sequence, bool),
    /// Lines that are damaged: what they said is not known.
    pub damaged_lines: usize,
}

impl Described {
    /// Adds what one server holds.
    pub fn add(&mut self, text: &str) {
        let torn = text.rsplit('\n').next().unwrap_or_default();
        for line in text[..text.len() - torn.len()].lines().filter(|line| !line.is_empty() && *line != FIRST_LINE) {
            match parse(line) {
                None => self.damaged_lines += 1,
                Some((sequence, line)) => self.add_line(sequence, line),
            }
        }
    }

    fn add_line(&mut self, sequence: Sequence, line: Line) {
        match line {
            Line::File(head) => {
                if self.head.as_ref().is_none_or(|(found, _)| *found < sequence) {
                    self.head = Some((sequence, head));
                }
            }
            Line::Place { region, place, size_bytes } => {
                self.sizes.push((sequence, size_bytes));
                if self.places.get(&region).is_none_or(|(found, _)| *found < sequence) {
                    self.places.insert(region, (sequence, place));
                }
            }
            Line::Truncated { size_bytes } => {
                self.truncations.push((sequence, size_bytes));
                self.sizes.push((sequence, size_bytes));
                self.exact = self.exact.max((sequence, true));
            }
            Line::Size { size_bytes, is_exact } => {
                self.sizes.push((sequence, size_bytes));
                self.exact = self.exact.max((sequence, is_exact));
            }
        }
    }

    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(_, head)| head)
    }

    /// The highest number of a broker.
    #[must_use]
    pub fn last_broker(&self) -> u64 {
        let all = self.sizes.iter().map(|(sequence, _)| *sequence);
        all.chain(self.head.iter().map(|(sequence, _)| *sequence)).map(|at| at.broker).max().unwrap_or(0)
    }

    /// Where regions lie, without those that a later cut took away.
    pub fn places(&self) -> impl Iterator<Item = (RegionIndex, &Place)> {
        let region_bytes = self.head().map_or(u64::MAX, |head| head.region_bytes.max(1));
        let is_gone = move |region: RegionIndex, sequence: Sequence| {
            let mut later = self.truncations.iter().filter(|(truncated, _)| *truncated > sequence);
            later.any(|(_, size_bytes)| region.0 >= RegionGeometry::new(region_bytes).count_for(*size_bytes))
        };
        let live = self.places.iter().filter(move |(region, (sequence, _))| !is_gone(**region, *sequence));
        live.map(|(region, (_, place))| (*region, place))
    }

    /// The file's size, where the end of what its objects hold is `held_bytes`.
    #[must_use]
    pub fn size_bytes(&self, held_bytes: u64) -> u64 {
        let since = self.truncations.iter().map(|(sequence, _)| *sequence).max().unwrap_or_default();
        let noted = self.sizes.iter().filter(|(sequence, _)| *sequence >= since).map(|(_, size)| *size);
        let noted = noted.max().unwrap_or(0);
        if self.exact.1 { noted } else { noted.max(held_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str) -> Head {
        let cluster = "c0ffee".to_owned();
        Head { file: FileId(7), cluster, region_bytes: 1 << 20, mode: 0o640, uid: 1, gid: 2, path: path.to_owned() }
    }

    fn place(region: u32, generation: u32, size_bytes: u64) -> Line {
        let place = Place {
            generation: Generation(generation),
            stripes: vec![("hdd-0.a".to_owned(), 65536), ("ssd_1".to_owned(), 1)],
        };
        Line::Place { region: RegionIndex(region), place, size_bytes }
    }

    fn text(lines: &[(u64, Line)]) -> String {
        let begun = format!("{FIRST_LINE}\n");
        lines.iter().fold(begun, |text, (step, of)| text + &line(Sequence { broker: 3, step: *step }, of))
    }

    fn generations(described: &Described) -> Vec<(u32, u32)> {
        described.places().map(|(region, place)| (region.0, place.generation.0)).collect()
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let all = [
            Line::File(head("/data/a b\n%41ä")),
            place(MAX_REGIONS - 1, u32::MAX, u64::MAX),
            Line::Truncated { size_bytes: 9 },
            Line::Size { size_bytes: 0, is_exact: false },
            Line::Size { size_bytes: 1, is_exact: true },
        ];
        for (step, of) in (1..).zip(&all) {
            let sequence = Sequence { broker: 1 << 40, step };
            assert_eq!(parse(line(sequence, of).trim_matches('\n')), Some((sequence, of.clone())));
        }
    }

    #[test]
    fn a_line_about_a_region_that_cannot_be_is_damage() {
        // Its checksum agrees: servers may be written by others. A repair died of regions of 0 bytes, and counted to the last of 2^32.
        let whole = head("/a");
        for region_bytes in [0, 1, 4095, 4097] {
            let text = line(Sequence::default(), &Line::File(Head { region_bytes, ..whole.clone() }));
            let mut described = Described::default();
            described.add(&text);
            assert_eq!((described.head(), described.damaged_lines), (None, 1), "{region_bytes}");
        }
        let mut described = Described::default();
        described.add(&text(&[(1, Line::File(whole)), (2, place(MAX_REGIONS, 1, 0)), (3, place(u32::MAX, 1, 0))]));
        assert_eq!((generations(&described), described.damaged_lines), (vec![], 2));
    }

    #[test]
    fn the_latest_line_counts_on_whatever_server_it_stands() {
        let mut described = Described::default();
        described.add(&text(&[(1, Line::File(head("/a"))), (2, place(0, 1, 10)), (6, place(1, 4, 10))]));
        described.add(&text(&[(1, Line::File(head("/a"))), (5, place(0, 3, 10)), (3, place(1, 2, 10))]));
        assert_eq!(generations(&described), [(0, 3), (1, 4)]);
        assert_eq!((described.damaged_lines, described.last_broker()), (0, 3));
        assert_eq!(described.head(), Some(&head("/a")));
    }

    #[test]
    fn what_was_cut_is_gone_and_what_came_after_is_there() {
        let mut described = Described::default();
        let size = |size_bytes, is_exact| Line::Size { size_bytes, is_exact };
        let lines = [(1, Line::File(head("/a"))), (2, place(0, 1, 0)), (3, place(2, 2, 3 << 20))];
        described.add(&text(&lines));
        assert_eq!(described.size_bytes(5), 3 << 20);
        described.add(&text(&[(4, Line::Truncated { size_bytes: 100 })]));
        assert_eq!((generations(&described), described.size_bytes(200)), (vec![(0, 1)], 100), "not cut yet");
        described.add(&text(&[(5, size(100, false))]));
        assert_eq!((described.size_bytes(90), described.size_bytes(200)), (100, 200), "written since");
        described.add(&text(&[(6, place(2, 3, 100)), (7, size(3 << 20, true))]));
        assert_eq!((generations(&described), described.size_bytes(9 << 20)), (vec![(0, 1), (2, 3)], 3 << 20));
    }

    #[test]
    fn a_torn_line_is_passed_over_and_a_damaged_one_is_counted() {
        let whole = text(&[(1, Line::File(head("/a"))), (2, place(0, 1, 10))]);
        let torn = whole.clone() + &line(Sequence { broker: 4, step: 1 }, &place(0, 9, 10)).trim_end()[..30];
        let mut described = Described::default();
        described.add(&torn);
        assert_eq!((generations(&described), described.damaged_lines), (vec![(0, 1)], 0));
        // What is appended behind it stands alone.
        let mut described = Described::default();
        described.add(&(torn + &line(Sequence { broker: 4, step: 2 }, &place(0, 7, 10))));
        assert_eq!((generations(&described), described.damaged_lines), (vec![(0, 7)], 1));
        for at in whole.find("place").unwrap()..whole.len() - 1 {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            let mut described = Described::default();
            described.add(&String::from_utf8(bytes).unwrap());
            assert_eq!((generations(&described), described.damaged_lines), (vec![], 1), "byte {at}");
        }
    }
}
