//! The request costs of Cost-intelligent table 2: one process's data on all servers (1-DH), on one (1-DV), or on one group of them (2-D).
//!
//! Deviations. The table as printed contradicts itself: 1-DV and 1-DH compare m with other quantities than those that decide, and the last
//! case of 2-D has m ceil(p / g) e, with which 2-D of one group is not 1-DH and 2-D of n groups not 1-DV. [`TableForm::Corrected`] has
//! neither fault; [`TableForm::Printed`] keeps the last case of 2-D as it stands in the paper. In 1-DH a server is charged p s v / n, not
//! the next whole number of requests; that is as printed.

use crate::{Concurrency, RequestCost, UniformParameters};
use stripewise_trace::AccessClass;

/// Over how many servers the data of one process, or the bytes of one request, is spread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProcessLayout {
    /// Over all.
    OneDh,
    /// On one.
    OneDv,
    /// Over one of `groups` groups of servers; held between 1 and n.
    TwoD {
        /// g.
        groups: u32,
    },
}

/// Which form of the last case of 2-D in table 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableForm {
    /// m ceil(n / g) e: one connection of each process of a node to each server of a group.
    #[default]
    Corrected,
    /// m ceil(p / g) e.
    Printed,
}

/// Table 2: the cost of one request of `class`. m is the concurrency's `processes_per_node`.
#[must_use]
pub fn request_cost(
    parameters: &UniformParameters,
    layout: ProcessLayout,
    form: TableForm,
    class: AccessClass,
    concurrency: Concurrency,
) -> RequestCost {
    let (p, m) = concurrency.factors();
    let n = f64::from(parameters.servers.max(1));
    let (e, v) = (parameters.e_s, parameters.v_s_per_byte);
    let line = parameters.of_class(class.kind, class.order);
    let s = class.request_bytes as f64;
    match layout {
        ProcessLayout::OneDv => {
            let queue = (p / n).ceil();
            let connections = m.max(queue);
            RequestCost {
                establish_s: connections * e,
                transfer_s: connections * s * v,
                storage_s: queue * line.seconds(s),
            }
        }
        ProcessLayout::OneDh => RequestCost {
            establish_s: p.max(m * n) * e,
            transfer_s: (p / n).max(m) * s * v,
            storage_s: p * line.seconds(s / n),
        },
        ProcessLayout::TwoD { groups } => {
            let g = f64::from(groups.clamp(1, parameters.servers.max(1)));
            let (queue, widest, narrowest) = ((p / g).ceil(), (n / g).ceil(), (n / g).floor());
            let (establish_s, transfer_s) = if p > g && m <= queue / narrowest {
                (queue * e, queue * s * v / narrowest)
            } else if p > g && form == TableForm::Printed {
                (m * queue * e, m * s * v)
            } else {
                (m * widest * e, m * s * v)
            };
            RequestCost { establish_s, transfer_s, storage_s: queue * line.seconds(s / narrowest) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::tests::uniform;
    use proptest::prelude::*;
    use stripewise_layout::{Direction, Order, RequestKind};

    fn close(a: RequestCost, b: RequestCost) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs().max(b.abs());
        near(a.establish_s, b.establish_s) && near(a.transfer_s, b.transfer_s) && near(a.storage_s, b.storage_s)
    }

    fn concurrency(processes: u32, processes_per_node: u32) -> Concurrency {
        Concurrency { processes, processes_per_node }
    }

    const READ: AccessClass = AccessClass { kind: RequestKind::Read, request_bytes: 65_536, order: Order::Random };

    proptest! {
        #[test]
        fn two_d_of_one_group_is_1_dh_and_of_n_groups_1_dv(
            n in 1u32..40, p in 1u32..200, m in 1u32..20, size in 1u64..1 << 24, write in any::<bool>(), random in any::<bool>(),
        ) {
            let parameters = uniform(n);
            let class = AccessClass {
                kind: if write { Direction::Write } else { Direction::Read }.into(),
                request_bytes: size,
                order: if random { Order::Random } else { Order::Sequential },
            };
            let cost = |layout| request_cost(&parameters, layout, TableForm::Corrected, class, concurrency(p, m));
            let [one_group, n_groups] = [1, n].map(|groups| cost(ProcessLayout::TwoD { groups }));
            prop_assert!(close(one_group, cost(ProcessLayout::OneDh)));
            prop_assert!(close(n_groups, cost(ProcessLayout::OneDv)));
        }
    }

    #[test]
    fn the_printed_form_breaks_both_identities() {
        let parameters = uniform(8);
        let cost = |layout, form, p, m| request_cost(&parameters, layout, form, READ, concurrency(p, m));
        // More processes on a node than p / n: the last case. It charges m p e where 1-DH has m n e, and m ceil(p / n) e where 1-DV has m e.
        let of_printed = |groups, p, m| cost(ProcessLayout::TwoD { groups }, TableForm::Printed, p, m).establish_s;
        let one_dh = cost(ProcessLayout::OneDh, TableForm::Printed, 16, 4).establish_s;
        assert_eq!((of_printed(1, 16, 4), one_dh), (4.0 * 16.0 * parameters.e_s, 4.0 * 8.0 * parameters.e_s));
        let one_dv = cost(ProcessLayout::OneDv, TableForm::Printed, 16, 4).establish_s;
        assert_eq!((of_printed(8, 16, 4), one_dv), (4.0 * 2.0 * parameters.e_s, 4.0 * parameters.e_s));
        // Elsewhere the two forms agree.
        for (p, m) in [(1, 1), (1, 4), (64, 1)] {
            let [a, b] =
                [TableForm::Printed, TableForm::Corrected].map(|f| cost(ProcessLayout::TwoD { groups: 2 }, f, p, m));
            assert_eq!(a, b);
        }
    }

    #[test]
    fn the_cases_of_table_2_by_hand() {
        let parameters = uniform(8);
        let (e, v, s) = (parameters.e_s, parameters.v_s_per_byte, 65_536.0);
        let line = parameters.of_class(Direction::Read, Order::Random);
        let found = |layout, p, m| request_cost(&parameters, layout, TableForm::Corrected, READ, concurrency(p, m));
        let expected = |establish_s, transfer_s, storage_s| RequestCost { establish_s, transfer_s, storage_s };
        // 12 processes on 8 servers: two queue at the fullest server.
        assert!(close(found(ProcessLayout::OneDv, 12, 1), expected(2.0 * e, 2.0 * s * v, 2.0 * line.seconds(s))));
        assert!(close(found(ProcessLayout::OneDv, 12, 3), expected(3.0 * e, 3.0 * s * v, 2.0 * line.seconds(s))));
        assert!(close(
            found(ProcessLayout::OneDh, 12, 1),
            expected(12.0 * e, 1.5 * s * v, 12.0 * line.seconds(s / 8.0))
        ));
        assert!(close(
            found(ProcessLayout::OneDh, 12, 2),
            expected(16.0 * e, 2.0 * s * v, 12.0 * line.seconds(s / 8.0))
        ));
        // Four groups of two: three processes to a group.
        let four = ProcessLayout::TwoD { groups: 4 };
        assert!(close(found(four, 12, 1), expected(3.0 * e, 1.5 * s * v, 3.0 * line.seconds(s / 2.0))));
        assert!(close(found(four, 12, 2), expected(4.0 * e, 2.0 * s * v, 3.0 * line.seconds(s / 2.0))));
        assert!(close(found(four, 3, 2), expected(4.0 * e, 2.0 * s * v, line.seconds(s / 2.0))));
    }

    #[test]
    fn fewer_processes_want_wide_layouts_and_more_want_narrow_ones() {
        // The parameters of the paper's table 4 (Ethernet, sequential), its 16 servers, and 4 MiB and 4 KiB requests as in its figure 5.
        let parameters = crate::parameters::tests::uniform_with(16, 3e-4, 1.0 / 120e6, 1e-4, 1.0 / 120e6);
        let best = |p, request_bytes| {
            let class = AccessClass { request_bytes, order: Order::Sequential, ..READ };
            let cost =
                |layout| request_cost(&parameters, layout, TableForm::Corrected, class, concurrency(p, 1)).total_s();
            [ProcessLayout::OneDh, ProcessLayout::OneDv, ProcessLayout::TwoD { groups: 8 }]
                .into_iter()
                .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
                .unwrap()
        };
        assert_eq!(best(1, 4 << 20), ProcessLayout::OneDh);
        assert_eq!(best(96, 4 << 20), ProcessLayout::OneDv);
        assert_eq!([1, 8, 96].map(|p| best(p, 4096)), [ProcessLayout::OneDv; 3]);
    }
}
