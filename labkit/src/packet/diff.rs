//! Comparing two packets: the first field that differs, by name.

use std::fmt;

use super::decode::decode;
use super::layer::{Layer, Layers};

/// The first difference between an expected and an actual packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the layer, such as `ipv6`, `ipv6#2` (the second of its name) or `quote.tcp`.
    pub layer: String,
    /// The field, or `kind` if the layers themselves differ, or `byte N` inside data.
    pub field: String,
    /// Value in the expected packet.
    pub expected: String,
    /// Value in the actual packet.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}: expected {}, got {}", self.layer, self.field, self.expected, self.actual)
    }
}

/// Compares two frames that start with Ethernet headers; `None` if all their bytes are equal.
pub fn diff(expected: &[u8], actual: &[u8]) -> Option<Difference> {
    if expected == actual {
        return None;
    }
    // Bits that no field shows (reserved ones) still must be reported as a difference.
    diff_layers(&decode(expected), &decode(actual)).or_else(|| byte_difference("frame", expected, actual))
}

/// Compares two decoded packets; `None` if they are equal.
pub fn diff_layers(expected: &Layers, actual: &Layers) -> Option<Difference> {
    compare("", expected, actual)
}

fn compare(prefix: &str, expected: &Layers, actual: &Layers) -> Option<Difference> {
    let layers = expected.0.len().max(actual.0.len());
    (0..layers).find_map(|n| match (expected.0.get(n), actual.0.get(n)) {
        (Some(want), Some(got)) if want.name() == got.name() => {
            compare_layer(&path(prefix, expected, n), want, got)
        }
        (want, got) => Some(Difference {
            layer: format!("{prefix}layer {}", n + 1),
            field: "kind".into(),
            expected: want.map_or("nothing", Layer::name).into(),
            actual: got.map_or("nothing", Layer::name).into(),
        }),
    })
}

fn compare_layer(path: &str, want: &Layer, got: &Layer) -> Option<Difference> {
    match (want, got) {
        (Layer::Quote(want), Layer::Quote(got)) => compare(&format!("{path}."), want, got),
        (Layer::Payload(want), Layer::Payload(got)) | (Layer::Trailer(want), Layer::Trailer(got)) => {
            byte_difference(path, want, got)
        }
        _ => want
            .fields()
            .into_iter()
            .zip(got.fields())
            .find(|(w, g)| w != g)
            .map(|((field, expected), (other, actual))| Difference {
                layer: path.to_owned(),
                field: if field == other { field.to_owned() } else { format!("{field} / {other}") },
                expected,
                actual,
            })
            // One side has a field more, such as options.
            .or_else(|| {
                let (want, got) = (want.fields(), got.fields());
                let n = want.len().min(got.len());
                let name = want.get(n).or(got.get(n))?.0;
                let show = |field: Option<&(&str, String)>| field.map_or("none".into(), |(_, v)| v.clone());
                Some(Difference {
                    layer: path.to_owned(),
                    field: name.to_owned(),
                    expected: show(want.get(n)),
                    actual: show(got.get(n)),
                })
            }),
    }
}

/// Length first, for a wrong length says more than the byte where the shorter one ended.
fn byte_difference(path: &str, want: &[u8], got: &[u8]) -> Option<Difference> {
    let of = |field: String, expected: String, actual: String| {
        Some(Difference { layer: path.to_owned(), field, expected, actual })
    };
    if want.len() != got.len() {
        return of("length".into(), want.len().to_string(), got.len().to_string());
    }
    let n = want.iter().zip(got).position(|(w, g)| w != g)?;
    of(format!("byte {n}"), format!("0x{:02x}", want[n]), format!("0x{:02x}", got[n]))
}

fn path(prefix: &str, layers: &Layers, n: usize) -> String {
    let name = layers.0[n].name();
    let before = layers.0[..n].iter().filter(|layer| layer.name() == name).count();
    if before == 0 { format!("{prefix}{name}") } else { format!("{prefix}{name}#{}", before + 1) }
}
