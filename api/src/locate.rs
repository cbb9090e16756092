//! Where in a YAML text a field stands, and what stands there: turns field paths into lines and back.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::object::yaml_options;

/// Fields of a document by path.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    places: BTreeMap<String, Place>,
}

/// Where a field's value begins.
#[derive(Clone, Debug)]
struct Place {
    line: u64,
    column: u64,
    /// Text of a scalar, empty for lists and mappings.
    value: String,
}

impl Fields {
    /// Reads the structure of a text. A text that is no YAML gives no fields.
    pub fn of(text: &str) -> Self {
        let mut fields = Self::default();
        if let Ok(root) = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, yaml_options()) {
            fields.walk(String::new(), &root);
        }
        fields
    }

    fn walk(&mut self, path: String, node: &Spanned<Node>) {
        let (line, column) = (node.referenced.line(), node.referenced.column());
        let mut value = String::new();
        match &node.value {
            Node::Scalar(text) => value.clone_from(text),
            Node::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.walk(format!("{path}[{i}]"), item);
                }
            }
            Node::Map(entries) => {
                for (key, item) in entries {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.walk(path, item);
                }
            }
        }
        self.places.insert(path, Place { line, column, value });
    }

    /// Line of a field; of the nearest field around it when it is missing; 1 for the document.
    pub fn line(&self, field: &str) -> u64 {
        let mut path = field;
        loop {
            if let Some(place) = self.places.get(path) {
                return place.line.max(1);
            }
            match path.rfind(['.', '[']) {
                Some(cut) => path = &path[..cut],
                None => return self.places.get("").map_or(1, |p| p.line.max(1)),
            }
        }
    }

    /// Text of a scalar field, empty when there is none.
    pub fn value(&self, field: &str) -> &str {
        self.places.get(field).map_or("", |p| &p.value)
    }

    /// The field whose value begins at a place, or the last one that begins before it.
    pub fn at(&self, line: u64, column: u64) -> &str {
        let before = |p: &Place| (p.line, p.column) <= (line, column);
        let mut best: Option<(&str, &Place)> = None;
        for (path, place) in self.places.iter().filter(|(_, p)| before(p)) {
            // Of fields that begin at one place (a mapping and its first key's value never do) the longer path is inner.
            if best.is_none_or(|(_, b)| (b.line, b.column) <= (place.line, place.column)) {
                best = Some((path, place));
            }
        }
        best.map_or("", |(path, _)| path)
    }

    /// The path that ends in `name` and stands at or nearest before a place: where an unknown key was written.
    pub fn named(&self, name: &str, line: u64) -> Option<&str> {
        let ends =
            |path: &str| path.strip_suffix(name).is_some_and(|head| head.is_empty() || head.ends_with('.'));
        let distance = |p: &Place| p.line.abs_diff(line);
        self.places
            .iter()
            .filter(|(path, _)| ends(path))
            .min_by_key(|(_, p)| distance(p))
            .map(|(path, _)| &**path)
    }
}

/// YAML without types.
#[derive(Debug)]
enum Node {
    Scalar(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! scalars {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E>(self, value: $type) -> Result<Node, E> { Ok(Node::Scalar(value.to_string())) })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(String::new()))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(String::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
