//! From the text of a file to a checked object, or to problems that name line, field, value and remedy.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::Error as YamlError;

use crate::checked::{CheckedObject, Identity, Kind};
use crate::locate::Fields;
use crate::meta::Metadata;
use crate::problem::{FileProblem, Problem};
use crate::{
    API_VERSION, BGPRouter, NAT66Shard, NetworkRule, ServiceVIPBinding, VPCEndpoint, check_binding,
    check_endpoint, check_router, check_rule,
};

/// Largest file that is read: about 20 times a rule with 512 backends.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// What reading one file gave: an object unless a problem refuses it.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The object, `None` exactly when a problem is an error.
    pub object: Option<CheckedObject>,
    /// All problems, warnings included, by line.
    pub problems: Vec<FileProblem>,
}

/// Reads one object from the text of a file. `path` only names the file in problems.
pub fn parse_file(path: &Path, bytes: &[u8]) -> Parsed {
    let (object, problems) = match text(bytes) {
        Err(problem) => return Parsed { object: None, problems: vec![problem.at(path, 1)] },
        Ok(text) => (parse_text(text), text),
    };
    let (object, found) = match object {
        Ok((object, found)) => (object, found.into_iter().map(|p| (p, None)).collect()),
        Err(Unread { problem, line }) => (None, vec![(problem, Some(line))]),
    };
    let mut problems = place(path, problems, found);
    problems.sort_by_key(|p| p.line);
    Parsed { object, problems }
}

/// A text that could not be read as what it should be.
#[derive(Clone, Debug)]
pub struct Unread {
    /// What is wrong.
    pub problem: Problem,
    /// Line, counted from 1.
    pub line: u64,
}

/// Gives problems their lines; reads the text's structure only when there are any.
fn place(path: &Path, text: &str, found: Vec<(Problem, Option<u64>)>) -> Vec<FileProblem> {
    if found.is_empty() {
        return Vec::new();
    }
    let fields = Fields::of(text);
    let line = |p: &Problem, line: Option<u64>| line.unwrap_or_else(|| fields.line(&p.field));
    found
        .into_iter()
        .map(|(p, l)| {
            let l = line(&p, l);
            p.at(path, l)
        })
        .collect()
}

/// The text of a file's bytes.
pub fn text(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() > MAX_FILE_BYTES {
        let why = format!("the file has {} bytes, more than {MAX_FILE_BYTES}", bytes.len());
        return Err(Problem::error("", "", why, "write one object a file"));
    }
    std::str::from_utf8(bytes)
        .map_err(|_| Problem::error("", "", "the file is not UTF-8", "save it as UTF-8 text"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
}

fn parse_text(text: &str) -> Result<(Option<CheckedObject>, Vec<Problem>), Unread> {
    if text.lines().all(|l| l.trim_start().is_empty() || l.trim_start().starts_with('#')) {
        let problem = Problem::error("", "", "the file holds no object", "write one, or remove the file");
        return Err(Unread { problem, line: 1 });
    }
    let Head { api_version, kind } = parse_yaml(text)?;
    let refuse = |field: &str, value: &str, why: &str, remedy: &str| {
        Ok((None, vec![Problem::error(field, value, why, remedy)]))
    };
    let version = format!("write apiVersion: {API_VERSION}");
    match api_version.as_deref() {
        Some(API_VERSION) => {}
        Some(other) => return refuse("apiVersion", other, "is not known", &version),
        None => return refuse("apiVersion", "", "is missing", &version),
    }
    let kinds = "write NetworkRule, VPCEndpoint, BGPRouter, NAT66Shard or ServiceVIPBinding";
    let kind = match kind.as_deref() {
        Some("NetworkRule") => Kind::NetworkRule,
        Some("VPCEndpoint") => Kind::VPCEndpoint,
        Some("BGPRouter") => Kind::BGPRouter,
        Some("NAT66Shard") => Kind::NAT66Shard,
        Some("ServiceVIPBinding") => Kind::ServiceVIPBinding,
        Some(other) => return refuse("kind", other, "is not known here", kinds),
        None => return refuse("kind", "", "is missing", kinds),
    };
    Ok(match kind {
        Kind::NetworkRule => {
            let (rule, problems) = check_rule::check(&parse_yaml::<NetworkRule>(text)?);
            (rule.map(CheckedObject::Rule), problems)
        }
        Kind::VPCEndpoint => {
            let (endpoint, problems) = check_endpoint::check(&parse_yaml::<VPCEndpoint>(text)?);
            (endpoint.map(CheckedObject::Endpoint), problems)
        }
        Kind::ServiceVIPBinding => {
            let (binding, problems) = check_binding::check(&parse_yaml::<ServiceVIPBinding>(text)?);
            (binding.map(CheckedObject::Binding), problems)
        }
        Kind::BGPRouter => {
            let (router, problems) = check_router::check(&parse_yaml::<BGPRouter>(text)?);
            (router.map(CheckedObject::Router), problems)
        }
        Kind::NAT66Shard => {
            let (shard, problems) = check_router::check_shard(&parse_yaml::<NAT66Shard>(text)?);
            (shard.map(CheckedObject::Shard), problems)
        }
    })
}

/// Reads a YAML text as a type; the first fault is told with line, field, value and remedy.
pub fn parse_yaml<T: DeserializeOwned>(text: &str) -> Result<T, Unread> {
    serde_saphyr::from_str_with_options(text, yaml_options()).map_err(|e| unread(text, e.without_snippet()))
}

fn unread(text: &str, error: &YamlError) -> Unread {
    let (line, column) = error.location().map_or((1, 1), |l| (l.line().max(1), l.column()));
    let fields = Fields::of(text);
    let here = fields.at(line, column);
    let value = fields.value(here).to_string();
    let problem = match error {
        YamlError::SerdeUnknownField { field, expected, .. } => {
            let path = fields.named(field, line).unwrap_or(field);
            let remedy = format!("remove it, or use one of {}", expected.join(", "));
            let line = fields.line(path);
            return Unread { problem: Problem::error(path, "", "is no known field", remedy), line };
        }
        YamlError::SerdeMissingField { field, .. } => {
            let path = missing(here, field);
            let line = fields.line(&path);
            return Unread { problem: Problem::error(path, "", "is missing", "add it"), line };
        }
        YamlError::SerdeUnknownVariant { variant, expected, .. } => {
            Problem::error(here, variant, "is not known", format!("use one of {}", expected.join(", ")))
        }
        YamlError::SerdeInvalidType { unexpected, expected, .. }
        | YamlError::SerdeInvalidValue { unexpected, expected, .. } => {
            Problem::error(here, value, format!("is {unexpected}"), format!("write {expected}"))
        }
        YamlError::InvalidScalar { ty, .. } => {
            Problem::error(here, value, "cannot be read", format!("write {}", type_name(ty)))
        }
        YamlError::DuplicateMappingKey { key, .. } => {
            // No structure can be read from such a text, so the key stands for the path.
            Problem::error(key.clone().unwrap_or_default(), "", "is written twice", "keep one of them")
        }
        YamlError::MultipleDocuments { .. } => {
            let remedy = "write one object a file";
            Problem::error("", "", "the file holds more than one document", remedy)
        }
        YamlError::Unexpected { expected, .. } => {
            let remedy = match *expected {
                "mapping start" => "write `name: value` lines, or {name: value}",
                "sequence start" => "write a list: `- item` lines, or [item, …]",
                _ => "write one value",
            };
            let why = if value.is_empty() { "is of the wrong shape" } else { "is a single value" };
            Problem::error(here, value, why, remedy)
        }
        YamlError::InvalidBooleanStrict { .. } => {
            Problem::error(here, value, "is neither true nor false", "write true or false")
        }
        other => {
            // The library's text may go on over several lines and repeats the place, which is told already.
            let text = other.to_string();
            let first = text.lines().next().unwrap_or_default();
            let first = first.split(" at line ").next().unwrap_or_default();
            Problem::error(here, value, format!("cannot be read: {first}"), "write it as YAML 1.2")
        }
    };
    Unread { problem, line }
}

/// Path of a missing field: the library names the place of a neighbour.
fn missing(neighbour: &str, field: &str) -> String {
    match neighbour.rfind('.') {
        Some(cut) => format!("{}.{field}", &neighbour[..cut]),
        None => field.to_string(),
    }
}

/// A scalar type's name for people.
fn type_name(ty: &str) -> &str {
    match ty {
        "i64" | "u64" | "u32" | "u16" | "i32" => "a whole number",
        "f64" => "a number",
        "bool" => "true or false",
        other => other,
    }
}

/// What YAML documents are read with: `yes` is a text, never a truth value.
pub(crate) fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true, with_snippet: false }
}

/// What a checked object keeps of metadata. Times were checked before: one that does not parse counts as not given.
pub(crate) fn identity(metadata: &Metadata) -> Identity {
    Identity {
        namespace: metadata.namespace.clone().unwrap_or_else(|| "default".into()),
        name: metadata.name.clone(),
        created: metadata.creation_timestamp.as_deref().and_then(|t| humantime::parse_rfc3339(t).ok()),
        deleted: metadata.deletion_timestamp.is_some(),
    }
}
