//! The cost of PADP (section 3.2, equations 2 to 5) as a function of real stripe sizes, which its linear programs minimise.
//!
//! Deviations: equation 3 drops p h t, which is right only for s >= h; here T_X = max(c r t, p h t, p s t). Fig. 2 prints
//! `p + max{..}` where equation 4 has the correct `p x max{..}`. A class with stripe 0 is absent: no startup, no connections.

use crate::{Coefficients, Concurrency};

/// One access pattern on one cluster: all that equations 2 to 5 depend on besides h and s.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PadpPattern {
    /// m.
    pub hservers: u32,
    /// n.
    pub sservers: u32,
    /// r.
    pub request_bytes: f64,
    /// p and c.
    pub concurrency: Concurrency,
    /// alpha_h, beta_h.
    pub hdd: Coefficients,
    /// alpha_s, beta_s.
    pub ssd: Coefficients,
    /// e in seconds.
    pub e_s: f64,
    /// t in seconds per byte.
    pub t_s_per_byte: f64,
}

impl PadpPattern {
    /// F of equation 5 with p h t: max(c r t, p h t, p s t) + p max(alpha_h + h beta_h, alpha_s + s beta_s), in seconds.
    /// Both classes pay their startup, as printed; the linear programs minimise this.
    #[must_use]
    pub fn objective_s(&self, h_bytes: f64, s_bytes: f64) -> f64 {
        let (p, c) = self.concurrency.factors();
        (c * self.request_bytes).max(p * h_bytes).max(p * s_bytes) * self.t_s_per_byte
            + p * self.hdd.seconds(h_bytes).max(self.ssd.seconds(s_bytes))
    }

    /// T of equation 2 in seconds, a class with stripe 0 being absent: T_E = max(p, c x servers) e by equation 3, plus F.
    #[must_use]
    pub fn cost_s(&self, h_bytes: f64, s_bytes: f64) -> f64 {
        let (p, c) = self.concurrency.factors();
        let (mut servers, mut slowest_s) = (0, 0.0f64);
        if h_bytes > 0.0 && self.hservers > 0 {
            servers += self.hservers;
            slowest_s = slowest_s.max(self.hdd.seconds(h_bytes));
        }
        if s_bytes > 0.0 && self.sservers > 0 {
            servers += self.sservers;
            slowest_s = slowest_s.max(self.ssd.seconds(s_bytes));
        }
        p.max(c * f64::from(servers)) * self.e_s
            + (c * self.request_bytes).max(p * h_bytes).max(p * s_bytes) * self.t_s_per_byte
            + p * slowest_s
    }
}
