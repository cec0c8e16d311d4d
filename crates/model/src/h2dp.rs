//! The request costs of H2DP section 3.4: table 2 for regions on hybrid servers, table 3 for regions on HServers only.
//!
//! Two deviations. The tables are printed for requests of exactly one cycle, m h + n s = r; other requests are costed with the
//! stripes clipped to what they can put on one server ([`most_bytes_on_one_server`]). A class whose stripe is 0 stores nothing, so it
//! costs neither startup nor connections; the printed table would charge alpha_h for `<0, s>`.

use crate::{ClassParameters, Concurrency, RequestCost, StripePair, most_bytes_on_one_server};
use stripewise_layout::ServerClass;
use stripewise_trace::AccessClass;

/// Table 2: the cost of one request of `class` on a region striped `pair` over all servers.
///
/// T_E = max(p, c (m + n)) e, T_X = max(c r t, p h t, p s t), T_S + T_T = p max(alpha_h + h beta_h, alpha_s + s beta_s). The printed
/// T_X lacks p h t because H2DP always has s > h; with it the same form serves PSA, where h > s. A pair of two zeros costs nothing.
#[must_use]
pub fn hybrid_cost(
    parameters: &ClassParameters,
    pair: StripePair,
    class: AccessClass,
    concurrency: Concurrency,
) -> RequestCost {
    let (p, c) = concurrency.factors();
    let hservers = if pair.h_bytes > 0 { parameters.hservers } else { 0 };
    let sservers = if pair.s_bytes > 0 { parameters.sservers } else { 0 };
    let cycle_bytes = pair.cycle_bytes(hservers, sservers);
    if cycle_bytes == 0 {
        return RequestCost::default();
    }
    let mut fullest_bytes = 0.0f64;
    let mut slowest_s = 0.0f64;
    for (servers, stripe_bytes, server_class) in
        [(hservers, pair.h_bytes, ServerClass::Hdd), (sservers, pair.s_bytes, ServerClass::Ssd)]
    {
        if servers > 0 {
            let bytes = most_bytes_on_one_server(stripe_bytes, cycle_bytes, class.request_bytes) as f64;
            let coefficients = parameters.of_class(server_class, class.direction, class.order);
            fullest_bytes = fullest_bytes.max(bytes);
            slowest_s = slowest_s.max(coefficients.seconds(bytes));
        }
    }
    RequestCost {
        establish_s: p.max(c * f64::from(hservers + sservers)) * parameters.e_s,
        transfer_s: (c * class.request_bytes as f64).max(p * fullest_bytes) * parameters.t_s_per_byte,
        storage_s: p * slowest_s,
    }
}

/// Table 3: the cost of one request of `class` on a region striped over the HServers alone; `stripe_bytes` is r / m in the paper.
///
/// T_E = max(p, c m) e, T_X = max(c r t, p r t / m), T_S + T_T = p (alpha_h + h beta_h).
#[must_use]
pub fn hservers_cost(
    parameters: &ClassParameters,
    stripe_bytes: u64,
    class: AccessClass,
    concurrency: Concurrency,
) -> RequestCost {
    hybrid_cost(parameters, StripePair::new(stripe_bytes, 0), class, concurrency)
}
