//! Sizes of requests from a histogram and the most common sizes.

/// Bins of Darshan's histograms.
pub const BINS: usize = 10;

/// How the counters of the bins end.
pub(super) const BIN_SUFFIXES: [&str; BINS] =
    ["0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS"];

/// The bins for people.
pub const BIN_NAMES: [&str; BINS] = [
    "to 100 B",
    "to 1 KiB",
    "to 10 KiB",
    "to 100 KiB",
    "to 1 MiB",
    "to 4 MiB",
    "to 10 MiB",
    "to 100 MiB",
    "to 1 GiB",
    "over 1 GiB",
];

/// The smallest size of each bin, and one behind the last.
const LIMITS: [u64; BINS + 1] = [
    1,
    101,
    (1 << 10) + 1,
    (10 << 10) + 1,
    (100 << 10) + 1,
    (1 << 20) + 1,
    (4 << 20) + 1,
    (10 << 20) + 1,
    (100 << 20) + 1,
    (1 << 30) + 1,
    16 << 30,
];

/// The bin of a size.
#[must_use]
pub fn bin_of(size: u64) -> usize {
    LIMITS[1..BINS].iter().position(|limit| size < *limit).unwrap_or(BINS - 1)
}

/// Sizes and how many requests have them, for one direction: together `requests`, and nearly `bytes`.
///
/// Common sizes are those of reads and writes together; a direction has its part of each by what `bins` says against `other`, the other
/// direction's. All other requests of a bin get one size within the bin's limits, all bins' in the same relation to their limits, so that the
/// bytes come out right.
pub(super) fn sizes(
    requests: u64,
    bytes: u64,
    bins: &[u64; BINS],
    other: &[u64; BINS],
    common: &[(u64, u64)],
) -> Vec<(u64, u64)> {
    if requests == 0 || bytes == 0 {
        return Vec::new();
    }
    let known = bins.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
    if known == 0 {
        return vec![(bytes.div_ceil(requests), requests)];
    }
    let mut left = *bins;
    let mut left_bytes = bytes as f64;
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (size, count) in common {
        let bin = bin_of(*size);
        let (mine, all) = (bins[bin], bins[bin].saturating_add(other[bin]));
        if mine == 0 {
            continue;
        }
        let part = (u128::from(*count) * u128::from(mine)).div_ceil(u128::from(all)) as u64;
        let fits = (left_bytes / *size as f64) as u64;
        let taken = part.min(left[bin]).min(fits);
        if taken > 0 {
            left[bin] -= taken;
            left_bytes -= (taken as f64) * (*size as f64);
            found.push((*size, taken));
        }
    }
    let at = relation(&left, left_bytes);
    for (bin, count) in left.iter().enumerate().filter(|(_, count)| **count > 0) {
        found.push((size_at(bin, at), *count));
    }
    found.sort_unstable();
    found.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        is_same
    });
    found
}

/// The size within a bin's limits that lies at `at` between them, 0 to 1.
fn size_at(bin: usize, at: f64) -> u64 {
    let (low, high) = (LIMITS[bin] as f64, (LIMITS[bin + 1] - 1) as f64);
    (low + (high - low) * at).round().max(1.0) as u64
}

/// Where between the limits the sizes have to lie for all bins to have `bytes`.
fn relation(bins: &[u64; BINS], bytes: f64) -> f64 {
    let sum = |limit: fn(usize) -> u64| -> f64 {
        bins.iter().enumerate().map(|(bin, count)| *count as f64 * limit(bin) as f64).sum()
    };
    let (low, high) = (sum(|bin| LIMITS[bin]), sum(|bin| LIMITS[bin + 1] - 1));
    if high > low { ((bytes - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(of: &[(usize, u64)]) -> [u64; BINS] {
        let mut bins = [0; BINS];
        of.iter().for_each(|(bin, count)| bins[*bin] = *count);
        bins
    }

    #[test]
    fn common_sizes_are_taken_and_the_rest_gets_the_remaining_bytes() {
        let reads = bins(&[(4, 100), (2, 10)]);
        let none = bins(&[]);
        let found = sizes(110, 100 * (1 << 20) + 10 * 5000, &reads, &none, &[(1 << 20, 100)]);
        assert_eq!(found, vec![(5000, 10), (1 << 20, 100)]);
        assert_eq!(sizes(7, 700, &none, &none, &[]), vec![(100, 7)], "without a histogram, the mean");
        assert_eq!(sizes(0, 0, &none, &none, &[(4, 4)]), vec![]);
    }

    #[test]
    fn directions_share_common_sizes_by_their_bins() {
        let (reads, writes) = (bins(&[(3, 30)]), bins(&[(3, 10)]));
        let size = 64 << 10;
        assert_eq!(sizes(30, 30 * size, &reads, &writes, &[(size, 40)]), vec![(size, 30)]);
        assert_eq!(sizes(10, 10 * size, &writes, &reads, &[(size, 40)]), vec![(size, 10)]);
    }

    #[test]
    fn every_size_lies_in_its_bin() {
        for bin in 0..BINS {
            for at in [0.0, 0.5, 1.0] {
                assert_eq!(bin_of(size_at(bin, at)), bin, "{bin} {at}");
            }
        }
    }
}
