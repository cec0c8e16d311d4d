//! Reads LMDB's file page by page and trusts nothing in it.
//!
//! LMDB maps its file and follows whatever numbers stand there: of a damaged file it may read other data, write over live pages, or die of a signal. So the
//! broker reads the whole tree with this reader before LMDB opens the file. It uses `pread` alone and checks every number before it follows it,
//! so no damage can end the process, and none that LMDB would follow goes unnoticed: page numbers, flags, bounds and order of nodes, order
//! of keys across pages, counts of pages and entries, and that free pages are neither used nor listed twice.

use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Bound;
use std::os::fd::AsFd;

/// The table's file in its directory, and its name in that.
pub(super) const FILE: &str = "data.mdb";
pub(super) const TABLE: &str = "rmt";

const HEADER_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
const DATABASE_BYTES: usize = 48;
const MAGIC: u32 = 0xBEEF_C0DE;
const DATA_VERSION: u32 = 1;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const META: u16 = 8;
/// Node flags: data on overflow pages, data is another tree.
const BIG: u16 = 1;
const TREE: u16 = 2;
/// Keys are native numbers, as those of the list of free pages.
const INTEGER_KEYS: u16 = 8;
const NO_PAGE: u64 = u64::MAX;
const MAX_KEY_BYTES: usize = 511;
const MAX_DEPTH: u16 = 32;
/// Faults told.
const MAX_FAULTS: usize = 20;

/// What was found of a table's file.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In words; empty: the file is whole, as far as LMDB's own structure goes.
    pub(super) faults: Vec<String>,
}

/// A root and what is below it, as LMDB notes it.
#[derive(Clone, Copy, Debug)]
struct Database {
    flags: u16,
    depth: u16,
    branch_pages: u64,
    leaf_pages: u64,
    overflow_pages: u64,
    entries: u64,
    root: u64,
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    page_bytes: usize,
    free: Database,
    main: Database,
    last_page: u64,
    transaction: u64,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of this length")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(number(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(number(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(number(bytes, at))
}

impl Database {
    fn parse(bytes: &[u8]) -> Self {
        Self {
            flags: u16_at(bytes, 4),
            depth: u16_at(bytes, 6),
            branch_pages: u64_at(bytes, 8),
            leaf_pages: u64_at(bytes, 16),
            overflow_pages: u64_at(bytes, 24),
            entries: u64_at(bytes, 32),
            root: u64_at(bytes, 40),
        }
    }
}

/// Called with the key, the data and the flags of every entry.
type Visit<'v> = &'v mut dyn FnMut(&mut Reader<'_>, &[u8], &[u8], u16);

/// One tree's walk.
struct Walk<'v> {
    what: &'static str,
    integer_keys: bool,
    branch_pages: u64,
    leaf_pages: u64,
    overflow_pages: u64,
    entries: u64,
    visit: Visit<'v>,
}

struct Node<'p> {
    flags: u16,
    key: &'p [u8],
    data: &'p [u8],
    /// Length of the data, wherever it stands.
    data_bytes: u32,
}

impl Walk<'_> {
    fn is_key(&self, key: &[u8]) -> bool {
        match self.integer_keys {
            true => key.len() == 8,
            false => (1..=MAX_KEY_BYTES).contains(&key.len()),
        }
    }

    /// Of two keys of this tree's kind.
    fn is_less(&self, one: &[u8], next: &[u8]) -> bool {
        match self.integer_keys {
            true => u64_at(one, 0) < u64_at(next, 0),
            false => one < next,
        }
    }

    fn is_within(&self, key: &[u8], (from, to): Limits<'_>) -> bool {
        let is_behind = match from {
            Bound::Included(from) => !self.is_less(key, from),
            _ => true,
        };
        is_behind
            && match to {
                Bound::Excluded(to) => self.is_less(key, to),
                _ => true,
            }
    }
}

struct Reader<'f> {
    file: &'f File,
    file_bytes: u64,
    page_bytes: usize,
    last_page: u64,
    used: HashSet<u64>,
    found: Found,
}

type Limits<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Reads the table named `name` in an LMDB file and calls `visit` with every key and value that can be reached, also behind a fault.
pub(super) fn read(file: &File, name: &[u8], mut visit: impl FnMut(&[u8], &[u8])) -> Result<Found, Errno> {
    let file_bytes = rustix::fs::fstat(file)?.st_size as u64;
    let mut reader = Reader {
        file,
        file_bytes,
        page_bytes: HEADER_BYTES,
        last_page: 0,
        used: HashSet::from([0, 1]),
        found: Found::default(),
    };
    let Some(meta) = reader.meta()? else { return Ok(reader.found) };
    (reader.page_bytes, reader.last_page) = (meta.page_bytes, meta.last_page);
    let mut tables = Vec::new();
    reader.tree("the list of tables", meta.main, &mut |reader, key, value, flags| {
        if key == name && flags == TREE && value.len() == DATABASE_BYTES {
            tables.push(Database::parse(value));
        } else {
            reader.fault(format!("an unknown table `{}`", String::from_utf8_lossy(key)));
        }
    });
    match tables.as_slice() {
        // A store that was just made.
        [] if meta.main.entries == 0 => {}
        [table] => reader.tree("the table", *table, &mut |reader, key, value, flags| match flags {
            0 => visit(key, value),
            _ => reader.fault(format!("an entry of the table with flags {flags}")),
        }),
        _ => reader.fault("no table in the list of tables".to_owned()),
    }
    reader.tree("the list of free pages", meta.free, &mut |reader, key, value, _| {
        reader.free_pages(meta.transaction, key, value);
    });
    Ok(reader.found)
}

impl Reader<'_> {
    fn fault(&mut self, what: String) {
        // A damaged page may have many.
        if self.found.faults.len() < MAX_FAULTS {
            self.found.faults.push(what);
        }
    }

    /// `length` bytes at `at`; `None`: the file ends before, or cannot be read there.
    fn bytes(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        if at.checked_add(length as u64)? > self.file_bytes {
            return None;
        }
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match rustix::io::retry_on_intr(|| {
                rustix::io::pread(self.file.as_fd(), &mut bytes[filled..], at + filled as u64)
            }) {
                Ok(0) | Err(_) => return None,
                Ok(more) => filled += more,
            }
        }
        Some(bytes)
    }

    /// The meta page that LMDB would take: that of the later transaction.
    fn meta(&mut self) -> Result<Option<Meta>, Errno> {
        let Some(first) = self.meta_at(0, 0) else { return Ok(None) };
        let Some(second) = self.meta_at(first.page_bytes as u64, 1) else { return Ok(None) };
        if first.page_bytes != second.page_bytes {
            self.fault("two sizes of pages".to_owned());
            return Ok(None);
        }
        let (older, newer) = match first.transaction < second.transaction {
            true => (first, second),
            false => (second, first),
        };
        // Transactions use the meta pages in turn.
        let in_turn = newer.transaction == older.transaction + 1 || newer.transaction <= 1;
        if !in_turn {
            self.fault(format!("meta pages of transactions {} and {}", older.transaction, newer.transaction));
        }
        Ok(Some(newer))
    }

    fn meta_at(&mut self, at: u64, page: u64) -> Option<Meta> {
        let Some(bytes) = self.bytes(at, HEADER_BYTES + 136) else {
            self.fault(format!("the file ends within meta page {page}"));
            return None;
        };
        let meta = &bytes[HEADER_BYTES..];
        let parsed = Meta {
            page_bytes: u32_at(meta, 24) as usize,
            free: Database::parse(&meta[24..72]),
            main: Database::parse(&meta[72..120]),
            last_page: u64_at(meta, 120),
            transaction: u64_at(meta, 128),
        };
        let is_whole = u64_at(&bytes, 0) == page
            && u16_at(&bytes, 10) == META
            && u32_at(meta, 0) == MAGIC
            && u32_at(meta, 4) == DATA_VERSION
            && u64_at(meta, 8) == 0
            && parsed.page_bytes.is_power_of_two()
            && (512..=1 << 16).contains(&parsed.page_bytes)
            && parsed.free.flags == INTEGER_KEYS
            && parsed.main.flags == 0
            && parsed.last_page >= 1
            && parsed.transaction % 2 == page * u64::from(parsed.transaction > 0);
        if !is_whole {
            self.fault(format!("meta page {page} is damaged"));
        }
        is_whole.then_some(parsed)
    }

    /// Takes page `page` (and `count - 1` more behind it) as used, and reads it.
    fn page(&mut self, page: u64, count: u64, what: &str) -> Option<Vec<u8>> {
        let end = page.checked_add(count).filter(|end| page >= 2 && count > 0 && end - 1 <= self.last_page);
        let Some(end) = end else {
            self.fault(format!("{what} names page {page}, which is none"));
            return None;
        };
        // Before each is noted: a damaged count may be of many more pages than there are.
        if end > self.file_bytes / self.page_bytes as u64 {
            self.fault(format!("the file ends before page {page} of {what}"));
            return None;
        }
        for page in page..end {
            if !self.used.insert(page) {
                self.fault(format!("page {page} of {what} is used twice"));
                return None;
            }
        }
        let length = self.page_bytes * count as usize;
        let bytes = self.bytes(page * self.page_bytes as u64, length);
        match bytes {
            None => self.fault(format!("page {page} of {what} cannot be read")),
            Some(ref bytes) if u64_at(bytes, 0) != page => {
                self.fault(format!("page {page} of {what} calls itself {}", u64_at(bytes, 0)));
                return None;
            }
            Some(_) => {}
        }
        bytes
    }

    fn tree(&mut self, what: &'static str, database: Database, visit: Visit<'_>) {
        let integer_keys = database.flags == INTEGER_KEYS;
        if !(integer_keys || database.flags == 0) || database.depth > MAX_DEPTH {
            return self.fault(format!("{what} has flags {} and depth {}", database.flags, database.depth));
        }
        let counted = {
            let mut walk =
                Walk { what, integer_keys, branch_pages: 0, leaf_pages: 0, overflow_pages: 0, entries: 0, visit };
            match (database.root, database.depth) {
                (NO_PAGE, 0) => {}
                (NO_PAGE, _) | (_, 0) => self.fault(format!("{what} has no root, or no depth")),
                (root, depth) => self.walk(&mut walk, root, depth, (Bound::Unbounded, Bound::Unbounded)),
            }
            [walk.branch_pages, walk.leaf_pages, walk.overflow_pages, walk.entries]
        };
        let noted = [database.branch_pages, database.leaf_pages, database.overflow_pages, database.entries];
        if counted != noted {
            self.fault(format!("{what} has {counted:?} branches, leaves, overflow pages and entries, not {noted:?}"));
        }
    }

    fn walk(&mut self, walk: &mut Walk<'_>, number: u64, levels: u16, limits: Limits<'_>) {
        let Some(page) = self.page(number, 1, walk.what) else { return };
        let kind = if levels == 1 { LEAF } else { BRANCH };
        let (flags, lower, upper) = (u16_at(&page, 10), usize::from(u16_at(&page, 12)), usize::from(u16_at(&page, 14)));
        let fits = lower % 2 == 0 && HEADER_BYTES < lower && lower <= upper && upper <= page.len();
        if flags != kind || !fits {
            return self.fault(format!("page {number} of {} has a damaged head", walk.what));
        }
        let Some(nodes) = Self::nodes(&page, lower, upper, kind) else {
            return self.fault(format!("page {number} of {} has nodes out of their bounds", walk.what));
        };
        // Of a branch the first key stands for all that is less than the second.
        let keys = &nodes[usize::from(kind == BRANCH)..];
        let are_keys = keys.iter().all(|node| walk.is_key(node.key) && walk.is_within(node.key, limits));
        if !are_keys || !keys.is_sorted_by(|one, next| walk.is_less(one.key, next.key)) {
            return self.fault(format!("page {number} of {} has keys out of order", walk.what));
        }
        if kind == LEAF {
            walk.leaf_pages += 1;
            for node in nodes {
                walk.entries += 1;
                self.entry(walk, &node);
            }
            return;
        }
        walk.branch_pages += 1;
        if nodes.len() < 2 {
            return self.fault(format!("page {number} of {} has a single branch", walk.what));
        }
        for (at, node) in nodes.iter().enumerate() {
            let from = if at == 0 { limits.0 } else { Bound::Included(node.key) };
            let to = nodes.get(at + 1).map_or(limits.1, |next| Bound::Excluded(next.key));
            // The number's higher half stands where a leaf's node has its flags.
            let child = u64::from(node.data_bytes) | u64::from(node.flags) << 32;
            self.walk(walk, child, levels - 1, (from, to));
        }
    }

    fn nodes(page: &[u8], lower: usize, upper: usize, kind: u16) -> Option<Vec<Node<'_>>> {
        let mut nodes = Vec::with_capacity((lower - HEADER_BYTES) / 2);
        let mut occupied = 0;
        for slot in (HEADER_BYTES..lower).step_by(2) {
            let at = usize::from(u16_at(page, slot));
            if at < upper || at % 2 != 0 || at + NODE_BYTES > page.len() {
                return None;
            }
            let (data_bytes, flags) = (u32_at(page, at), u16_at(page, at + 4));
            let key_end = at + NODE_BYTES + usize::from(u16_at(page, at + 6));
            let key = page.get(at + NODE_BYTES..key_end)?;
            let data = match (kind, flags) {
                (BRANCH, _) => &[],
                // The number of the first page that holds it.
                (_, BIG) => page.get(key_end..key_end + 8)?,
                _ => page.get(key_end..key_end.checked_add(data_bytes as usize)?)?,
            };
            occupied += (key_end + data.len() - at).next_multiple_of(2);
            nodes.push(Node { flags, key, data, data_bytes });
        }
        // Nodes stand without gaps, so none overlaps another.
        (occupied == page.len() - upper).then_some(nodes)
    }

    fn entry(&mut self, walk: &mut Walk<'_>, node: &Node<'_>) {
        if node.flags != BIG {
            return (walk.visit)(self, node.key, node.data, node.flags);
        }
        let (first, length) = (u64_at(node.data, 0), node.data_bytes as usize);
        let Some(head) = self.bytes(first.saturating_mul(self.page_bytes as u64), HEADER_BYTES) else {
            return self.fault(format!("the file ends before page {first} of {}", walk.what));
        };
        let pages = u64::from(u32_at(&head, 12));
        let needed = (HEADER_BYTES + length).div_ceil(self.page_bytes) as u64;
        if u16_at(&head, 10) != OVERFLOW || pages < needed || pages > self.last_page {
            return self.fault(format!("page {first} of {} is no overflow page of {length} bytes", walk.what));
        }
        walk.overflow_pages += pages;
        if let Some(bytes) = self.page(first, pages, walk.what) {
            (walk.visit)(self, node.key, &bytes[HEADER_BYTES..HEADER_BYTES + length], 0);
        }
    }

    /// A list of pages that a transaction freed: their number and they.
    fn free_pages(&mut self, transaction: u64, key: &[u8], value: &[u8]) {
        let count = value.first_chunk().map_or(u64::MAX, |bytes| u64::from_ne_bytes(*bytes));
        let holds = (value.len() / 8) as u64;
        if u64_at(key, 0) > transaction || !value.len().is_multiple_of(8) || count >= holds {
            return self.fault(format!("the list of pages that transaction {} freed is damaged", u64_at(key, 0)));
        }
        for at in 1..=count as usize {
            let page = u64_at(value, 8 * at);
            if page < 2 || page > self.last_page || !self.used.insert(page) {
                self.fault(format!("page {page} is listed as free, but is used or is none"));
            }
        }
    }
}
