//! `stripewise schema`: the JSON Schemas of what the command prints with `--json` and of the JSON files that people meet, generated from
//! the types that are written and read. `docs/schemas` holds them for those who do not run the command.

use crate::context::Context;
use crate::evacuate::JSON_NAME;
use crate::output::Verdict;
use anyhow::{Context as _, Result};
use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use stripewise::envelope;
use stripewise::table::Table;

/// Print the JSON Schema of a command's output or of a file
///
/// What commands print with --json has the name of the command; files end in `-file`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise schema
  stripewise schema ls
  stripewise schema plan-file > plan.schema.json")]
pub(crate) struct SchemaArgs {
    /// What the schema is of [default: list the names]
    name: Option<String>,
}

/// A JSON form, under the name that `stripewise schema` takes.
struct Form {
    name: &'static str,
    kind: Kind,
    /// Structures of which each instance is one.
    shapes: &'static [Shape],
}

enum Kind {
    /// What the command of that name prints with `--json`.
    Printed,
    /// What is only written, and read by others.
    Written(&'static str),
    /// What is read as well: fields with a default may be missing.
    Read(&'static str),
}

type Shape = fn(&'static str, &mut SchemaGenerator) -> Schema;

const fn printed(name: &'static str, shapes: &'static [Shape]) -> Form {
    Form { name, kind: Kind::Printed, shapes }
}

const fn written(name: &'static str, what: &'static str, shapes: &'static [Shape]) -> Form {
    Form { name, kind: Kind::Written(what), shapes }
}

const fn read(name: &'static str, what: &'static str, shapes: &'static [Shape]) -> Form {
    Form { name, kind: Kind::Read(what), shapes }
}

/// In an object of the command.
fn of<T: JsonSchema>(command: &'static str, generator: &mut SchemaGenerator) -> Schema {
    envelope::schema::<T>(command, generator)
}

/// By itself.
fn plain<T: JsonSchema>(_: &'static str, generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

const FORMS: &[Form] = &[
    read("cluster-file", "cluster.toml, as JSON", &[plain::<stripewise_layout::Cluster>]),
    read("site-file", "site.toml, as JSON", &[plain::<stripewise_planner::site::SiteFile>]),
    read("profile-file", "a profile, as `calibrate` writes it", &[plain::<stripewise_model::Profile>]),
    read("plan-file", "a plan, as `plan` writes it", &[plain::<stripewise_planner::Plan>]),
    read("results-file", "results.json, as `demo` writes it", &[plain::<stripewise_report::results::Results>]),
    read("sim-file", "what `simulate -o` writes", &[plain::<stripewise_report::simulation::Simulation>]),
    read("trace-file", "trace.json of a trace", &[plain::<stripewise_trace::manifest::Manifest>]),
    written("daemon-online", "answer of the daemon to GET /online", &[plain::<stripewise::daemon::OnlineStatus>]),
    printed("advise", &[of::<crate::advise::Shown>]),
    printed("apply", &[of::<crate::apply::Shown>]),
    printed("calibrate", &[of::<stripewise::calibrate::Calibrated>, of::<stripewise::calibrate::Verification>]),
    printed("check", &[of::<stripewise::check::Checked>]),
    printed("cp", &[of::<crate::cp::Shown>]),
    printed("demo", &[of::<crate::demo::Shown>]),
    printed("devices", &[of::<crate::devices::Listed>]),
    printed("doctor", &[of::<stripewise::doctor::Diagnosis>]),
    printed(JSON_NAME, &[of::<stripewise::evacuate::Evacuated>]),
    printed(
        "explain",
        &[of::<stripewise_planner::explain::Overview>, of::<stripewise_planner::explain::RegionExplanation>],
    ),
    printed("export", &[of::<crate::export::Exported>]),
    printed("fragments", &[of::<crate::fragments::Shown>]),
    printed(
        "host",
        &[
            of::<crate::host::Shown>,
            of::<crate::host::ShownMetrics>,
            of::<stripewise::hosts::Rekeyed>,
            of::<stripewise::hosts::Probed>,
        ],
    ),
    printed("init", &[of::<stripewise::init::Initialized>]),
    printed("ls", &[of::<crate::ls::Listing>, of::<crate::ls::ServerListing>]),
    printed("manage", &[of::<stripewise::manage::ManagedDirectory>, of::<stripewise::manage::ManagedPaths>]),
    printed("migrate", &[of::<stripewise::migrate::MigrateStatus>]),
    printed("mount", &[of::<crate::mount::Shown>]),
    printed("phase", &[of::<stripewise::phase::MarkedPhase>]),
    printed("plan", &[of::<crate::plan::One>, of::<crate::plan::All>]),
    printed("rebalance", &[of::<stripewise::rebalance::Rebalanced>]),
    printed("release", &[of::<crate::release::Shown>]),
    printed("replay", &[of::<stripewise_lab::replay::Replayed>]),
    printed("report", &[of::<crate::report::Written>]),
    printed("reproduce", &[of::<stripewise_lab::reproduce::Results>, of::<crate::reproduce::Listed>]),
    printed("rescue", &[of::<stripewise::rescue::Rescued>]),
    printed("restripe", &[of::<stripewise::restripe::Restriped>]),
    printed("rm", &[of::<crate::rm::Shown>]),
    printed("run", &[of::<stripewise::capture::CaptureSummary>]),
    printed("schema", &[of::<Listed>]),
    printed("simulate", &[of::<stripewise_report::simulation::Printed>]),
    printed("site", &[of::<crate::site::Shown>]),
    printed("stat", &[of::<crate::stat::Shown>, of::<stripewise::stat::ClusterStat>]),
    printed("sync", &[of::<crate::sync::Shown>]),
    printed(
        "trace",
        &[
            of::<stripewise::capture::CaptureSummary>,
            of::<stripewise::trace_summary::TraceSummary>,
            of::<crate::trace::export::Exported>,
        ],
    ),
    printed("unmanage", &[of::<stripewise::manage::ManagedDirectory>, of::<stripewise::manage::ForgottenNames>]),
];

impl Form {
    fn what(&self) -> String {
        match self.kind {
            Kind::Printed if self.name == JSON_NAME => {
                "output of `stripewise evacuate --json`, which has the command's former name".to_owned()
            }
            Kind::Printed => format!("output of `stripewise {} --json`", self.name),
            Kind::Written(what) | Kind::Read(what) => what.to_owned(),
        }
    }

    fn schema(&self) -> Schema {
        let settings = SchemaSettings::draft2020_12();
        let settings = match self.kind {
            Kind::Printed | Kind::Written(_) => settings.for_serialize(),
            Kind::Read(_) => settings.for_deserialize(),
        };
        let mut generator = settings.into_generator();
        let mut shapes: Vec<Schema> = self.shapes.iter().map(|shape| shape(self.name, &mut generator)).collect();
        let mut schema = match shapes.len() {
            1 => shapes.remove(0),
            _ => schemars::json_schema!({ "anyOf": shapes }),
        };
        if let Some(dialect) = &generator.settings().meta_schema {
            schema.insert("$schema".into(), dialect.to_string().into());
        }
        schema.insert("title".into(), self.what().into());
        let definitions = generator.take_definitions(true);
        if !definitions.is_empty() {
            schema.insert("$defs".into(), definitions.into());
        }
        RecursiveTransform(describe_for_users).transform(&mut schema);
        schema
    }
}

/// Descriptions are comments of the sources: as one line, without the links of rustdoc.
fn describe_for_users(schema: &mut Schema) {
    if let Some(serde_json::Value::String(description)) = schema.get_mut("description") {
        *description = without_links(&description.replace('\n', " ")).replace("`None`", "null");
    }
}

/// `` [`name`](target) `` and `` [`name`] `` become `` `name` ``.
fn without_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
        let after_target = rest.strip_prefix('(').and_then(|target| target.split_once(')')).map(|(_, after)| after);
        let name = name.rsplit("crate::").next().unwrap_or(name);
        plain += &format!("`{name}`{}", after_target.unwrap_or(rest));
    }
    plain
}

/// The schemas that there are.
#[derive(Serialize, JsonSchema)]
struct Listed {
    /// In the order of the list.
    schemas: Vec<ListedForm>,
}

#[derive(Serialize, JsonSchema)]
struct ListedForm {
    /// As the command takes it.
    name: &'static str,
    /// What has that form.
    what: String,
}

pub(crate) fn run(context: &Context, arguments: SchemaArgs) -> Result<Verdict> {
    if let Some(name) = arguments.name {
        let form = FORMS.iter().find(|form| form.name == name || (form.name == JSON_NAME && name == "evacuate"));
        let form = form.with_context(|| format!("no schema `{name}`; `stripewise schema` lists them"))?;
        let text = serde_json::to_string_pretty(&form.schema()).context("writing JSON")?;
        context.bytes((text + "\n").as_bytes())?;
    } else if context.json {
        let schemas = FORMS.iter().map(|form| ListedForm { name: form.name, what: form.what() }).collect();
        context.object(&Listed { schemas })?;
    } else {
        let mut table = Table::new(&["name", "what"]);
        for form in FORMS {
            table.row([form.name.to_owned(), form.what()]);
        }
        context.line(table.to_string().trim_end())?;
    }
    Ok(Verdict::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    /// Their data are bytes, text or nothing. `evacuate` prints under its former name, `drain`.
    const WITHOUT_OBJECT: [&str; 7] = ["broker", "cat", "completions", "daemon", "darshan-reader", "evacuate", "man"];

    #[test]
    fn every_command_that_prints_json_has_a_schema() {
        let commands: BTreeSet<String> = crate::command::Cli::command()
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .filter(|name| !WITHOUT_OBJECT.contains(&name.as_str()))
            .collect();
        let forms = FORMS.iter().filter(|form| matches!(form.kind, Kind::Printed) && form.name != "drain");
        assert_eq!(forms.map(|form| form.name.to_owned()).collect::<BTreeSet<_>>(), commands);
    }

    #[test]
    fn descriptions_are_for_people_who_do_not_read_rustdoc() {
        assert_eq!(without_links("[`PLAN_VERSION`], as read"), "`PLAN_VERSION`, as read");
        assert_eq!(without_links("of [`File`](crate::File) and [`crate::Row`]."), "of `File` and `Row`.");
        assert_eq!(without_links("a list [x, y]"), "a list [x, y]");
        for form in FORMS {
            let text = serde_json::to_string(&form.schema()).unwrap();
            assert!(!text.contains("[`"), "{}: {text}", form.name);
        }
    }

    /// The names and tags of an enumeration's values excepted: the values are described.
    #[test]
    fn every_field_is_described() {
        fn undescribed(schema: &serde_json::Value, at: &str, found: &mut Vec<String>) {
            let properties = schema.get("properties").and_then(serde_json::Value::as_object);
            let is_value = at.ends_with("/oneOf") && schema.get("description").is_some();
            for (name, property) in properties.into_iter().flatten() {
                let is_tag =
                    property.get("const").is_some() || (is_value && properties.is_some_and(|all| all.len() == 1));
                if property.get("description").is_none() && !is_tag {
                    found.push(format!("{at}.{name}"));
                }
            }
            for (key, value) in schema.as_object().into_iter().flatten() {
                undescribed(value, &format!("{at}/{key}"), found);
            }
            for value in schema.as_array().into_iter().flatten() {
                undescribed(value, at, found);
            }
        }
        let mut found = Vec::new();
        for form in FORMS {
            undescribed(form.schema().as_value(), form.name, &mut found);
        }
        assert!(found.is_empty(), "fields without a comment: {found:#?}");
    }
}
