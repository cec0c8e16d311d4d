//! What `docs/policies.md` says of a policy in its table.

/// Where a policy comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A paper, and its section where it has more than one policy.
    Paper(&'static str),
    /// What others are compared with, and whose it is.
    Baseline(&'static str),
    /// This project's own.
    Own,
}

/// A policy's cells in the table of policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// Anchor of the section that explains it.
    pub section: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// What its stripe sizes differ by, such as files and regions.
    pub stripes_differ_by: &'static str,
    /// How it chooses the regions that go to SSD servers.
    pub ssd_regions: &'static str,
    /// Whether its plans move data between windows.
    pub moves_data: &'static str,
}

impl About {
    /// The row of the policy `name`.
    pub(super) fn row(&self, name: &str) -> String {
        let source = match self.source {
            Source::Paper(source) | Source::Baseline(source) => source,
            Source::Own => "none: our own",
        };
        let Self { section, stripes_differ_by, ssd_regions, moves_data, .. } = self;
        format!("| [`{name}`](#{section}) | {source} | {stripes_differ_by} | {ssd_regions} | {moves_data} |\n")
    }
}

/// The head of the table.
pub(super) const HEAD: &str =
    "| policy | source | stripes differ by | regions on SSD servers | moves data |\n|---|---|---|---|---|\n";
