//! Which module uses which, and the knots in that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use crate::source::{Module, ModulePath, Modules};

enum Target {
    Module(ModulePath),
    /// Defined in this module.
    Item(ModulePath),
}

/// Re-exports may go through other re-exports, but not for ever.
const MAX_DEPTH: usize = 12;

struct Names<'a>(&'a Modules);

impl Names<'_> {
    /// What a path in a module stands for; none if it leads out of the crate or to nothing known.
    fn resolve(&self, module: &ModulePath, path: &[String], depth: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut start = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => parent(module)?,
            name => {
                return match self.lookup(module, name, !rest.is_empty(), depth)? {
                    Target::Module(found) => self.descend(found, rest, depth),
                    item @ Target::Item(_) => Some(item),
                };
            }
        };
        while let Some((next, after)) = rest.split_first()
            && next == "super"
        {
            start = parent(&start)?;
            rest = after;
        }
        self.descend(start, rest, depth)
    }

    fn descend(&self, module: ModulePath, path: &[String], depth: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        match self.lookup(&module, name, !rest.is_empty(), depth) {
            Some(Target::Module(found)) => self.descend(found, rest, depth),
            Some(item) => Some(item),
            // An import of another crate's item, or what a macro defined in this module.
            None if self.0[&module].imports.iter().any(|(import, _)| import == name) => None,
            None => Some(Target::Item(module)),
        }
    }

    /// A module and an item may share a name: `leads_on` says whether the path goes on behind it.
    fn lookup(&self, module: &ModulePath, name: &str, leads_on: bool, depth: usize) -> Option<Target> {
        let known = self.0.get(module).filter(|_| depth < MAX_DEPTH)?;
        let child: ModulePath = module.iter().cloned().chain([name.to_owned()]).collect();
        let child = self.0.contains_key(&child).then_some(Target::Module(child));
        if leads_on && child.is_some() {
            return child;
        }
        if known.items.contains(name) {
            return Some(Target::Item(module.clone()));
        }
        let imported = known.imports.iter().filter(|(import, _)| import == name);
        let imported = imported.filter(|(_, path)| path.as_slice() != [name]);
        if let Some(found) = imported.filter_map(|(_, path)| self.resolve(module, path, depth + 1)).next() {
            return Some(found);
        }
        child.or_else(|| self.by_glob(module, known, name, leads_on, depth))
    }

    fn by_glob(&self, module: &ModulePath, known: &Module, name: &str, leads_on: bool, depth: usize) -> Option<Target> {
        known.globs.iter().find_map(|path| match self.resolve(module, path, depth + 1)? {
            Target::Module(from) if from != *module => self.lookup(&from, name, leads_on, depth + 1),
            _ => None,
        })
    }

    /// Macros are also known by the order of the text, without a path.
    fn macro_named(&self, path: &[String]) -> Option<Target> {
        let [name] = path else { return None };
        let definer = self.0.iter().find(|(_, module)| module.macros.contains(name))?;
        Some(Target::Item(definer.0.clone()))
    }
}

fn parent(module: &ModulePath) -> Option<ModulePath> {
    module.split_last().map(|(_, above)| above.to_vec())
}

/// One place at which a module names another.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

/// By folder: who of the children uses which sibling, and where first.
type Edges = BTreeMap<ModulePath, BTreeMap<(String, String), Use>>;

fn edges(modules: &Modules) -> Edges {
    let names = Names(modules);
    let mut edges = Edges::new();
    for (user, module) in modules {
        for reference in &module.references {
            let found = names
                .resolve(user, &reference.path, 0)
                .or_else(|| reference.is_macro.then(|| names.macro_named(&reference.path))?);
            let Some(Target::Module(used) | Target::Item(used)) = found else { continue };
            let shared = user.iter().zip(&used).take_while(|(left, right)| left == right).count();
            if let (Some(from), Some(to)) = (user.get(shared), used.get(shared)) {
                let place = || Use { file: module.file.clone(), line: reference.line };
                let folder = edges.entry(user[..shared].to_vec()).or_default();
                folder.entry((from.clone(), to.clone())).or_insert_with(place);
            }
        }
    }
    edges
}

/// Sibling modules each of which leads to every other.
pub(crate) struct Knot {
    pub(crate) folder: ModulePath,
    pub(crate) modules: BTreeSet<String>,
    /// Shortest circles, together through all of the modules.
    pub(crate) circles: Vec<Vec<(String, Use)>>,
}

pub(crate) fn knots(modules: &Modules) -> Vec<Knot> {
    let mut knots = Vec::new();
    for (folder, uses) in edges(modules) {
        let nodes: BTreeSet<&String> = uses.keys().map(|(from, _)| from).collect();
        let mut seen = BTreeSet::new();
        for node in nodes {
            if seen.contains(node) || way(&uses, node, node).is_none() {
                continue;
            }
            let is_in = |other: &&String| way(&uses, node, other).is_some() && way(&uses, other, node).is_some();
            let members: BTreeSet<String> = uses.keys().map(|(from, _)| from).filter(is_in).cloned().collect();
            seen.extend(members.iter().cloned());
            let (mut circles, mut shown) = (Vec::new(), BTreeSet::new());
            for member in &members {
                if shown.contains(member) {
                    continue;
                }
                let circle = way(&uses, member, member).unwrap();
                shown.extend(circle.iter().map(|(name, _)| name.clone()));
                circles.push(circle);
            }
            knots.push(Knot { folder: folder.clone(), modules: members, circles });
        }
    }
    knots
}

/// The shortest way of at least one edge: each module on it with its use of the next.
fn way(uses: &BTreeMap<(String, String), Use>, from: &str, to: &str) -> Option<Vec<(String, Use)>> {
    let mut before: BTreeMap<&str, (&str, &Use)> = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(node) = waiting.pop_front() {
        let next = uses.iter().filter(|((user, _), _)| user == node);
        for ((_, used), place) in next {
            if before.contains_key(used.as_str()) {
                continue;
            }
            before.insert(used, (node, place));
            waiting.push_back(used);
        }
        if before.contains_key(to) {
            break;
        }
    }
    let mut way = Vec::new();
    let mut at = to;
    loop {
        let (node, place) = before.get(at)?;
        way.push(((*node).to_owned(), (*place).clone()));
        at = node;
        if at == from {
            way.reverse();
            return Some(way);
        }
    }
}
