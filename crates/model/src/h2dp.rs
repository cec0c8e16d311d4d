//! The request costs of H2DP section 3.4: table 2 for regions on hybrid servers, table 3 for regions on HServers only.
//!
//! Two deviations. The tables are printed for requests of exactly one cycle, m h + n s = r; other requests are costed with the
//! stripes clipped to what they can put on one server ([`most_bytes_on_one_server`]). A class whose stripe is 0 stores nothing, so it
//! costs neither startup nor connections; the printed table would charge alpha_h for `<0, s>`.

use crate::{
    ClassParameters, Coefficients, Concurrency, Picoseconds, RequestCost, StripePair, most_bytes_on_one_server,
};
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
            let coefficients = parameters.of_class(server_class, class.kind, class.order);
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

/// [`hybrid_cost`] of many classes at once, in whole picoseconds: what classes of one size share is worked out once.
#[derive(Clone, Debug)]
pub struct ClassCosts {
    hservers: u32,
    sservers: u32,
    e_s: f64,
    t_s_per_byte: f64,
    /// The distinct request sizes.
    sizes: Vec<u64>,
    classes: Vec<CostedClass>,
}

#[derive(Clone, Copy, Debug)]
struct CostedClass {
    /// Position in `sizes`.
    size: u32,
    hdd: Coefficients,
    ssd: Coefficients,
}

/// What a pair makes of requests of one size.
#[derive(Clone, Copy)]
struct SizeCost {
    network_s: f64,
    h_bytes: f64,
    s_bytes: f64,
}

impl ClassCosts {
    /// Costs of `classes`, which [`Self::write_costs`] returns in the same order.
    #[must_use]
    pub fn new(parameters: &ClassParameters, classes: &[AccessClass]) -> Self {
        let mut numbers = std::collections::HashMap::new();
        let mut sizes = Vec::new();
        let classes = classes.iter().map(|class| CostedClass {
            size: *numbers.entry(class.request_bytes).or_insert_with(|| {
                sizes.push(class.request_bytes);
                sizes.len() as u32 - 1
            }),
            hdd: parameters.of_class(ServerClass::Hdd, class.kind, class.order),
            ssd: parameters.of_class(ServerClass::Ssd, class.kind, class.order),
        });
        let classes = classes.collect();
        let ClassParameters { hservers, sservers, e_s, t_s_per_byte, .. } = *parameters;
        Self { hservers, sservers, e_s, t_s_per_byte, sizes, classes }
    }

    /// Writes the cost of one request of each class, in their order, to `costs_ps`: [`hybrid_cost`]'s total, at most 2^64 - 1.
    pub fn write_costs(&self, pair: StripePair, concurrency: Concurrency, costs_ps: &mut [u64]) {
        let (p, c) = concurrency.factors();
        let hservers = if pair.h_bytes > 0 { self.hservers } else { 0 };
        let sservers = if pair.s_bytes > 0 { self.sservers } else { 0 };
        let cycle_bytes = pair.cycle_bytes(hservers, sservers);
        if cycle_bytes == 0 {
            costs_ps.fill(0);
            return;
        }
        let establish_s = p.max(c * f64::from(hservers + sservers)) * self.e_s;
        let of_size = |size: &u64| {
            let (cycles, rest) = (size / cycle_bytes, size % cycle_bytes);
            let most =
                |stripe: u64, servers: u32| if servers > 0 { (cycles * stripe + stripe.min(rest)) as f64 } else { 0.0 };
            let (h_bytes, s_bytes) = (most(pair.h_bytes, hservers), most(pair.s_bytes, sservers));
            let transfer_s = (c * *size as f64).max(p * h_bytes.max(s_bytes)) * self.t_s_per_byte;
            SizeCost { network_s: establish_s + transfer_s, h_bytes, s_bytes }
        };
        let sizes: Vec<SizeCost> = self.sizes.iter().map(of_size).collect();
        // An absent class takes no time.
        let (with_hdd, with_ssd) = (f64::from(u8::from(hservers > 0)), f64::from(u8::from(sservers > 0)));
        for (cost_ps, class) in costs_ps.iter_mut().zip(&self.classes) {
            let size = sizes[class.size as usize];
            let (hdd_s, ssd_s) = (class.hdd.seconds(size.h_bytes), class.ssd.seconds(size.s_bytes));
            let storage_s = p * (hdd_s * with_hdd).max(ssd_s * with_ssd);
            *cost_ps = Picoseconds::narrow_from_seconds(size.network_s + storage_s);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::tests::classes;
    use proptest::prelude::*;
    use stripewise_layout::{Direction, Order};

    proptest! {
        #[test]
        fn many_classes_at_once_cost_what_each_costs_alone(
            m in 0u32..13, n in 0u32..9, h in 0u64..200, s in 0u64..200, p in 1u32..65, c in 1u32..9,
            sizes in proptest::collection::vec(1u64..1 << 26, 1..9), e_s in 0.0..1e-3f64, t in 0.0..1e-8f64,
            alpha_s in 0.0..1e-2f64, beta in 0.0..1e-7f64,
        ) {
            let parameters = classes(m, n, e_s, t, alpha_s, beta);
            let list: Vec<AccessClass> = sizes
                .iter()
                .flat_map(|size| [(Direction::Read, Order::Random), (Direction::Write, Order::Sequential)].map(|(direction, order)| {
                    AccessClass { kind: direction.into(), request_bytes: *size, order }
                }))
                .collect();
            let (pair, concurrency) =
                (StripePair::new(h * 4096, s * 512), Concurrency { processes: p, processes_per_node: c });
            let mut found = vec![7; list.len()];
            ClassCosts::new(&parameters, &list).write_costs(pair, concurrency, &mut found);
            let alone = list.iter().map(|class| hybrid_cost(&parameters, pair, *class, concurrency).total().0 as u64);
            prop_assert_eq!(found, alone.collect::<Vec<_>>());
        }
    }
}
