//! What a site's file system is called, and which of its facts a description of the site needs.
//!
//! A row of [`crate::native`]'s table has one of these; the site is checked against the rows, so that neither knows the other.

use stripewise_layout::ByteCount;

/// A kind of parallel file system, as `fs = "…"` of a site names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// As in `fs` and in `--to`.
    pub name: &'static str,
    /// As its makers write it.
    pub title: &'static str,
    /// What it calls one independent place that stores bytes.
    pub target: &'static str,
    /// Base of the number that ends a target's name, in which `names = ["OST0008..OST000b"]` counts.
    pub radix: u32,
    /// How its commands name targets.
    pub naming: Naming,
    /// Stripe size of a file about which nobody says anything, where the site does not say another.
    pub stripe_size: ByteCount,
    /// Targets of such a file; 0: all.
    pub stripe_count: u32,
    /// Longest name of a pool, where there is a limit that commands meet.
    pub pool_name_bytes: Option<usize>,
    /// Whether a pool's name is an expression of labels, which says how many copies there are: `2A,B` three.
    pub has_labels: bool,
    /// Whether Darshan's logs say how files lie on it.
    pub has_logged_layouts: bool,
    /// Bytes of a file's layout, at least and at most, where the longer one says more.
    pub layout_bytes: Option<(u64, u64)>,
}

/// How commands name single targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// By number. Where a name has none at its end, the site gives `numbers`.
    Numbers,
    /// By addresses, which the site gives.
    Addresses,
    /// Not at all: they name pools.
    Pools,
}

impl FileSystem {
    /// Copies that a pool of that name keeps, where names say it.
    pub(crate) fn copies_of(&self, pool: &str) -> Option<u32> {
        // Behind `@` stand the parts of erasure coding, which are no copies.
        if !self.has_labels || pool.starts_with('@') {
            return None;
        }
        let of = |term: &str| {
            let digits = term.len() - term.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            term[..digits].parse().unwrap_or(1u32).max(1)
        };
        Some(pool.split(',').map(of).fold(0, u32::saturating_add))
    }

    /// The number at the end of a target's name.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<u32> {
        let (_, digits) = self.split_number(name);
        u32::from_str_radix(digits, self.radix).ok()
    }

    /// A name without the number at its end, and that number's digits. Letters count as digits only behind a decimal one or in groups of four, as
    /// in `OST000a`.
    pub(crate) fn split_number<'n>(&self, name: &'n str) -> (&'n str, &'n str) {
        const HEX_DIGITS: usize = 4;
        let at = match name.len().checked_sub(HEX_DIGITS) {
            Some(at) if self.radix == 16 && name.is_char_boundary(at) => {
                let is_number = name[at..].bytes().all(|byte| byte.is_ascii_hexdigit());
                if is_number { Some(at) } else { None }
            }
            _ => None,
        };
        let decimal = || name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        name.split_at(at.unwrap_or_else(decimal))
    }
}
