//! Fitting the line time = alpha + bytes x beta to measured times.
//!
//! Times from 4 KiB to 4 MiB span three decades, so the fit minimises *relative* deviations: plain least squares would follow the largest
//! requests and leave alpha to chance. And a measured time has outliers, nearly all of them late ones (another program, a
//! flush, a full queue), so deviations count by Tukey's biweight: fully near the line, less further out, not at all beyond 4.685 times their
//! usual size. The start is the line through the medians of every size, which half of the times would have to be wrong to move.

use crate::profile::Line;

/// One measured request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Size of the request.
    pub bytes: u64,
    /// Time it took, above 0.
    pub seconds: f64,
}

/// Why no line can be put through samples.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum FitError {
    /// All samples have one size, or there are none: alpha and beta cannot be told apart.
    #[error("{sizes} request size(s) measured; a line needs at least two")]
    TooFewSizes {
        /// Distinct sizes among the samples.
        sizes: usize,
    },
    /// A sample's time is 0, negative or not a number.
    #[error("a request of {bytes} bytes took {seconds} s; a time must be positive and finite")]
    BadTime {
        /// Size of that sample.
        bytes: u64,
        /// Its time.
        seconds: f64,
    },
}

/// A fitted line, and how many samples it leaves out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// alpha, beta and how well they fit.
    pub line: Line,
    /// Samples so far off the line that they do not count.
    pub outliers: u32,
}

/// Where the biweight reaches 0, in standard deviations: 95 % efficient on normal errors (Holland and Welsch, 1977).
const BIWEIGHT_REACH: f64 = 4.685;
/// Of a normal distribution, standard deviation over median absolute deviation.
const DEVIATIONS_PER_MAD: f64 = 1.4826;
/// Deviations below this are taken for rounding of the clock, not for noise to be measured against.
const MIN_SCALE: f64 = 1e-4;
const ROUNDS: usize = 50;

/// The robust line through `samples`. Neither alpha nor beta is negative; where the data asks for it, it is 0. R2 is that
/// of the relative fit over the samples that count, spread the median relative deviation of all.
///
/// # Errors
///
/// [`FitError::BadTime`] for the first sample whose time is not positive and finite,
/// [`FitError::TooFewSizes`] below two distinct sizes.
pub fn fit(samples: &[Sample]) -> Result<Fit, FitError> {
    if let Some(bad) = samples.iter().find(|sample| !(sample.seconds.is_finite() && sample.seconds > 0.0)) {
        return Err(FitError::BadTime { bytes: bad.bytes, seconds: bad.seconds });
    }
    let medians = medians(samples);
    if medians.len() < 2 {
        return Err(FitError::TooFewSizes { sizes: medians.len() });
    }
    let mut line = weighted_line(medians.iter().map(|sample| (*sample, 1.0 / sample.seconds.powi(2))));
    let mut weights = vec![1.0; samples.len()];
    for _ in 0..ROUNDS {
        let deviations: Vec<f64> = samples.iter().map(|sample| deviation(*sample, line)).collect();
        let scale = DEVIATIONS_PER_MAD * median(deviations.iter().map(|deviation| deviation.abs()).collect());
        let reach = BIWEIGHT_REACH * scale.max(MIN_SCALE);
        for (weight, deviation) in weights.iter_mut().zip(&deviations) {
            *weight = (1.0 - (deviation / reach).powi(2)).max(0.0).powi(2);
        }
        let next = weighted_line(
            samples.iter().zip(&weights).map(|(sample, weight)| (*sample, weight / at(line, sample.bytes).powi(2))),
        );
        let change =
            (next.0 - line.0).abs() / at(line, 0).max(at(line, 4096)) + (next.1 - line.1).abs() / line.1.max(1e-15);
        line = next;
        if change < 1e-12 {
            break;
        }
    }
    let spread = median(samples.iter().map(|sample| deviation(*sample, line).abs()).collect());
    let outliers = weights.iter().filter(|weight| **weight == 0.0).count() as u32;
    let r2 = determination(samples, &weights, line);
    let (alpha_s, beta_s_per_byte) = line;
    let line = Line { alpha_s, beta_s_per_byte, r2, spread, samples: samples.len() as u32 };
    Ok(Fit { line, outliers })
}

fn at((alpha, beta): (f64, f64), bytes: u64) -> f64 {
    alpha + beta * bytes as f64
}

fn deviation(sample: Sample, line: (f64, f64)) -> f64 {
    sample.seconds / at(line, sample.bytes) - 1.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The median time of every size.
fn medians(samples: &[Sample]) -> Vec<Sample> {
    let mut by_size = std::collections::BTreeMap::<u64, Vec<f64>>::new();
    for sample in samples {
        by_size.entry(sample.bytes).or_default().push(sample.seconds);
    }
    by_size.into_iter().map(|(bytes, seconds)| Sample { bytes, seconds: median(seconds) }).collect()
}

/// Least squares with weights, both coefficients at least 0.
fn weighted_line(weighted: impl Iterator<Item = (Sample, f64)>) -> (f64, f64) {
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (sample, weight) in weighted {
        let x = sample.bytes as f64;
        w += weight;
        wx += weight * x;
        wy += weight * sample.seconds;
        wxx += weight * x * x;
        wxy += weight * x * sample.seconds;
    }
    let determinant = w * wxx - wx * wx;
    // One size left with weight: the samples say nothing of a slope.
    let beta = if determinant > 0.0 { (w * wxy - wx * wy) / determinant } else { 0.0 };
    let alpha = (wy - beta * wx) / w;
    match (alpha < 0.0, beta < 0.0) {
        (true, _) => (0.0, wxy / wxx),
        (_, true) => (wy / w, 0.0),
        _ => (alpha, beta),
    }
}

/// One minus unexplained over total variation, both relative to the line and by weight.
fn determination(samples: &[Sample], weights: &[f64], line: (f64, f64)) -> f64 {
    let weighted =
        || samples.iter().zip(weights).map(|(sample, weight)| (sample, weight / at(line, sample.bytes).powi(2)));
    let total: f64 = weighted().map(|(_, weight)| weight).sum();
    let mean = weighted().map(|(sample, weight)| weight * sample.seconds).sum::<f64>() / total;
    let unexplained: f64 =
        weighted().map(|(sample, weight)| weight * (sample.seconds - at(line, sample.bytes)).powi(2)).sum();
    let variation: f64 = weighted().map(|(sample, weight)| weight * (sample.seconds - mean).powi(2)).sum();
    if variation > 0.0 { 1.0 - unexplained / variation } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: [u64; 11] =
        [1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22];

    proptest! {
        /// Disks to flash, 5 % noise, one time in five late by a factor of up to 50.
        #[test]
        fn parameters_survive_noise_and_outliers(
            alpha_us in 20.0..20_000.0_f64,
            megabytes_per_s in 20.0..3_000.0_f64,
            draws in prop::collection::vec((-1.0..1.0_f64, 0..5_u8, 2.0..50.0_f64), 11 * 20),
        ) {
            let (alpha, beta) = (alpha_us / 1e6, 1e-6 / megabytes_per_s);
            let samples: Vec<Sample> = draws.iter().enumerate().map(|(number, (noise, outlier, late))| {
                let bytes = SIZES[number % SIZES.len()];
                let late = if *outlier == 0 { *late } else { 1.0 };
                Sample { bytes, seconds: (alpha + beta * bytes as f64) * (1.0 + 0.05 * noise) * late }
            }).collect();
            let Fit { line, outliers } = fit(&samples).unwrap();
            for bytes in SIZES {
                let truth = alpha + beta * bytes as f64;
                prop_assert!((line.seconds(bytes as f64) / truth - 1.0).abs() < 0.05, "{line:?} at {bytes}: {truth}");
            }
            // Alpha shows to the degree that it is a part of the smallest times, beta of the largest.
            let smallest = alpha + beta * 4096.0;
            prop_assert!((line.alpha_s - alpha).abs() < 0.05 * smallest, "{line:?}: {alpha}");
            prop_assert!((line.beta_s_per_byte - beta).abs() < 0.05 * (beta + alpha / 4_194_304.0), "{line:?}: {beta}");
            let late = draws.iter().filter(|draw| draw.1 == 0).count();
            prop_assert!((outliers as usize).abs_diff(late) <= 12, "{outliers} rejected, {late} late");
            prop_assert!(line.spread < 0.06 && line.r2 <= 1.0, "{line:?}");
        }

        /// Without noise the line comes back as it was.
        #[test]
        fn exact_times_give_the_exact_line(alpha in 1e-6..0.1_f64, beta in 1e-10..1e-7_f64) {
            let samples = SIZES.map(|bytes| Sample { bytes, seconds: alpha + beta * bytes as f64 });
            let line = fit(&samples).unwrap().line;
            prop_assert!((line.alpha_s - alpha).abs() < 1e-9 * (alpha + beta * 4096.0), "{line:?}");
            prop_assert!((line.beta_s_per_byte / beta - 1.0).abs() < 1e-6 * (1.0 + alpha / (beta * 4_194_304.0)), "{line:?}");
            prop_assert!(line.r2 > 0.999_999 && line.spread < 1e-9 && line.samples == 11, "{line:?}");
        }
    }

    #[test]
    fn no_coefficient_is_negative() {
        let falling = SIZES.map(|bytes| Sample { bytes, seconds: 1e-3 - 1e-10 * bytes as f64 });
        let line = fit(&falling).unwrap().line;
        assert_eq!(line.beta_s_per_byte, 0.0);
        assert!((5e-4..1e-3).contains(&line.alpha_s), "{line:?}");
        let sinking = SIZES.map(|bytes| Sample { bytes, seconds: (1e-8 * bytes as f64 - 2e-5).max(1e-6) });
        assert_eq!(fit(&sinking).unwrap().line.alpha_s, 0.0);
    }

    #[test]
    fn what_makes_no_line_is_refused() {
        assert_eq!(fit(&[]), Err(FitError::TooFewSizes { sizes: 0 }));
        let one = Sample { bytes: 4096, seconds: 0.5 };
        assert_eq!(fit(&[one, one]), Err(FitError::TooFewSizes { sizes: 1 }));
        let bad = Sample { bytes: 8192, seconds: 0.0 };
        assert_eq!(fit(&[one, bad]), Err(FitError::BadTime { bytes: 8192, seconds: 0.0 }));
        let error = fit(&[one, Sample { bytes: 8192, seconds: f64::NAN }]).unwrap_err();
        assert!(error.to_string().contains("8192 bytes took NaN s"), "{error}");
    }
}
