//! The modules of a crate as `syn` reads them: what each defines, imports and names. Code under `cfg(test)` is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ForeignItem, ImplItem, Item, Meta, UseTree};

/// Names from the crate's root down; the root is empty.
pub(crate) type ModulePath = Vec<String>;

/// A path as it stands in a module, and where.
pub(crate) struct Reference {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    pub(crate) is_macro: bool,
}

#[derive(Default)]
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) items: BTreeSet<String>,
    pub(crate) macros: BTreeSet<String>,
    /// Name in this module and the path that it stands for.
    pub(crate) imports: Vec<(String, Vec<String>)>,
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) references: Vec<Reference>,
}

pub(crate) type Modules = BTreeMap<ModulePath, Module>;

/// All modules below the file of a crate's root.
pub(crate) fn read_crate(root: &Path) -> Modules {
    let mut modules = Modules::new();
    read_file(root, root.parent().unwrap(), Vec::new(), &mut modules);
    modules
}

/// `children` is the directory in which the files of the module's children lie.
fn read_file(file: &Path, children: &Path, path: ModulePath, modules: &mut Modules) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    if !is_test(&parsed.attrs) {
        read_items(&parsed.items, file, children, path, modules);
    }
}

fn read_items(items: &[Item], file: &Path, children: &Path, path: ModulePath, modules: &mut Modules) {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    for item in items.iter().filter(|item| !is_test(attributes(item))) {
        let Item::Mod(child) = item else {
            module.items.extend(names_defined(item));
            if let Item::Macro(definition) = item {
                module.macros.extend(definition.ident.iter().map(ToString::to_string));
            }
            module.visit_item(item);
            continue;
        };
        let name = child.ident.to_string();
        let child_path: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
        let below = children.join(&name);
        if let Some((_, content)) = &child.content {
            read_items(content, file, &below, child_path, modules);
        } else if let Some(named) = path_attribute(&child.attrs) {
            let named = file.parent().unwrap().join(named);
            read_file(&named, named.parent().unwrap(), child_path, modules);
        } else {
            let plain = children.join(format!("{name}.rs"));
            let found = if plain.exists() { plain } else { below.join("mod.rs") };
            read_file(&found, &below, child_path, modules);
        }
    }
    modules.insert(path, module);
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether it is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all (test") || condition.starts_with("all(test")
        }
        Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn names_defined(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => return item.ident.iter().map(ToString::to_string).collect(),
        Item::ForeignMod(block) => {
            let names = block.items.iter().filter_map(|item| match item {
                ForeignItem::Fn(item) => Some(item.sig.ident.to_string()),
                ForeignItem::Static(item) => Some(item.ident.to_string()),
                ForeignItem::Type(item) => Some(item.ident.to_string()),
                _ => None,
            });
            return names.collect();
        }
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}

impl Module {
    fn refer(&mut self, path: Vec<String>, line: usize) {
        self.references.push(Reference { path, line, is_macro: false });
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String]) {
        let joined = |name: &syn::Ident| {
            let own = (name != "self").then(|| name.to_string());
            prefix.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        let (name, path) = match tree {
            UseTree::Path(path) => {
                let prefix: Vec<String> = prefix.iter().cloned().chain([path.ident.to_string()]).collect();
                return self.import(&path.tree, &prefix);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, prefix)),
            UseTree::Glob(_) => {
                self.refer(prefix.to_vec(), tree.span().start().line);
                return self.globs.push(prefix.to_vec());
            }
            UseTree::Name(name) => {
                let path = joined(&name.ident);
                (path.last().cloned().unwrap_or_default(), path)
            }
            UseTree::Rename(rename) => (rename.rename.to_string(), joined(&rename.ident)),
        };
        self.refer(path.clone(), tree.span().start().line);
        self.imports.push((name, path));
    }

    /// Paths in what `syn` leaves as tokens: the arguments of macros, their definitions, attributes. A single name counts where it begins
    /// with a capital or is called.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.finish(&mut path, line, false);
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    let is_call = group.delimiter() == Delimiter::Parenthesis && colons == 0;
                    self.finish(&mut path, line, is_call);
                    colons = 0;
                    self.scan(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.finish(&mut path, line, false);
                    colons = 0;
                }
            }
        }
        self.finish(&mut path, line, false);
    }

    fn finish(&mut self, path: &mut Vec<String>, line: usize, is_call: bool) {
        let path = std::mem::take(path);
        let is_type = path.first().is_some_and(|name| name.starts_with(char::is_uppercase));
        if path.len() > 1 || !path.is_empty() && (is_type || is_call) {
            self.refer(path, line);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(item) => &item.attrs[..],
            ImplItem::Const(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A single small name is a variable or what an import of its own stands for; `visit_expr_call` sees the functions.
        if path.leading_colon.is_none() && (names.len() > 1 || names[0].starts_with(char::is_uppercase)) {
            self.refer(names, path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func
            && let Some(name) = function.path.get_ident()
        {
            self.refer(vec![name.to_string()], name.span().start().line);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        let names: Vec<String> = invocation.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.references.push(Reference { path: names, line: invocation.span().start().line, is_macro: true });
        self.scan(invocation.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone());
        }
    }
}
