//! A topology as a drawing: columns by distance from the first node, few crossings, interface names at the links' ends.

use std::collections::BTreeMap;

use maud::{Markup, PreEscaped, html};

use super::model::{Diagram, DiagramNode};

/// Distances in the drawing's units, which are pixels at full size.
const MARGIN: f64 = 16.0;
const ROW_GAP: f64 = 34.0;
const PORT: f64 = 17.0;
const BOX_HEIGHT: f64 = 50.0;
const BOX_WIDTH: f64 = 116.0;
/// Width of a character of the node's name, of its role, and of an interface name.
const NAME_CHARACTER: f64 = 8.6;
const ROLE_CHARACTER: f64 = 6.6;
const LABEL_CHARACTER: f64 = 6.4;
/// How often columns are sorted by their neighbours; more changes nothing at these sizes.
const SWEEPS: usize = 8;

/// A node where it is drawn.
#[derive(Debug, Clone)]
struct Placed {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Placed {
    fn middle(&self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// The drawing as an inline SVG. Colours come from the page's style sheet: see `.topology` there.
pub fn draw(diagram: &Diagram) -> Markup {
    let columns = columns(diagram);
    let ports = ports(diagram, &columns);
    let (placed, width, height) = place(diagram, &columns, &ports);
    let roles = roles(diagram);
    html! {
        svg class="topology" role="img" aria-label="topology"
            viewBox=(format!("0 0 {width:.0} {height:.0}"))
            style=(format!("max-width:{width:.0}px")) xmlns="http://www.w3.org/2000/svg" {
            @for wire in wires(diagram, &columns, &ports, &placed) { (wire) }
            @for (node, place) in diagram.nodes.iter().zip(&placed) {
                (node_box(node, place, roles.get(node.role.as_str()).copied().unwrap_or(0)))
            }
        }
    }
}

/// Indexes of the nodes at both ends of each link that has both.
fn edges(diagram: &Diagram) -> Vec<Option<(usize, usize)>> {
    let find = |name: &str| diagram.nodes.iter().position(|node| node.name == name);
    diagram.links.iter().map(|link| find(&link.a.0).zip(find(&link.b.0))).collect()
}

/// Column of each node: its rank where given, else its distance from the nodes of the first one's role.
fn ranks(diagram: &Diagram) -> Vec<usize> {
    let mut ranks: Vec<Option<usize>> = diagram.nodes.iter().map(|node| node.rank).collect();
    let edges: Vec<(usize, usize)> = edges(diagram).into_iter().flatten().collect();
    let first = diagram.nodes.first();
    let is_first = |node: &DiagramNode| {
        first.is_some_and(|f| f.name == node.name || (!f.role.is_empty() && f.role == node.role))
    };
    for (n, node) in diagram.nodes.iter().enumerate() {
        if ranks[n].is_none() && is_first(node) {
            ranks[n] = Some(0);
        }
    }
    // Nearest first, so that a rank given far down does not pull its neighbours there.
    let mut settled = vec![false; ranks.len()];
    let nearest = |ranks: &[Option<usize>], settled: &[bool]| {
        (0..ranks.len()).filter(|n| !settled[*n] && ranks[*n].is_some()).min_by_key(|n| ranks[*n])
    };
    while let Some(n) = nearest(&ranks, &settled) {
        settled[n] = true;
        let next = ranks[n].map(|rank| rank + 1);
        for (a, b) in edges.iter().filter(|(a, b)| *a == n || *b == n) {
            let other = if *a == n { *b } else { *a };
            ranks[other] = ranks[other].or(next);
        }
    }
    ranks.into_iter().map(Option::unwrap_or_default).collect()
}

/// Columns of node indexes, each from top to bottom, ordered so that few links cross.
fn columns(diagram: &Diagram) -> Vec<Vec<usize>> {
    let ranks = ranks(diagram);
    let mut by_rank: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (n, rank) in ranks.iter().enumerate() {
        by_rank.entry(*rank).or_default().push(n);
    }
    let mut columns: Vec<Vec<usize>> = by_rank.into_values().collect();
    let edges: Vec<(usize, usize)> = edges(diagram).into_iter().flatten().collect();
    for sweep in 0..SWEEPS {
        let order: Vec<usize> = if sweep % 2 == 0 {
            (1..columns.len()).collect()
        } else {
            (0..columns.len().saturating_sub(1)).rev().collect()
        };
        for c in order {
            let fixed = if sweep % 2 == 0 { c - 1 } else { c + 1 };
            let position = |node: usize| {
                let column = &columns[fixed];
                let at = column.iter().position(|other| *other == node)?;
                Some((at as f64 + 0.5) / column.len() as f64)
            };
            let mut weighted: Vec<(f64, usize)> = columns[c]
                .iter()
                .enumerate()
                .map(|(row, node)| {
                    let near: Vec<f64> = edges
                        .iter()
                        .filter(|(a, b)| a == node || b == node)
                        .filter_map(|(a, b)| position(if a == node { *b } else { *a }))
                        .collect();
                    let own = (row as f64 + 0.5) / columns[c].len() as f64;
                    (if near.is_empty() { own } else { near.iter().sum::<f64>() / near.len() as f64 }, *node)
                })
                .collect();
            weighted.sort_by(|a, b| a.0.total_cmp(&b.0));
            columns[c] = weighted.into_iter().map(|(_, node)| node).collect();
        }
    }
    columns
}

/// Which side of its node a link's end is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// A link's end: its node's side, its place among the ends on that side, and how many there are.
#[derive(Debug, Clone, Copy)]
struct Port {
    side: Side,
    place: usize,
    of: usize,
}

/// What an end is sorted by, its link, and which end of it.
type LinkEnd = (f64, usize, usize);

/// Ports of both ends of each link. Ends on one side stand in the order of their other ends.
fn ports(diagram: &Diagram, columns: &[Vec<usize>]) -> Vec<Option<[Port; 2]>> {
    let at = |node: usize| {
        columns
            .iter()
            .enumerate()
            .find_map(|(c, column)| column.iter().position(|n| *n == node).map(|row| (c, row)))
            .unwrap_or_default()
    };
    let edges = edges(diagram);
    let mut sides: BTreeMap<(usize, bool), Vec<LinkEnd>> = BTreeMap::new();
    for (link, edge) in edges.iter().enumerate() {
        let Some((a, b)) = *edge else { continue };
        for (end, (node, other)) in [(a, b), (b, a)].into_iter().enumerate() {
            let ((column, _), (other_column, other_row)) = (at(node), at(other));
            // Links within a column leave on the right and come back there.
            let right = other_column >= column;
            let key = (other_row as f64 + 0.5) / columns[other_column].len().max(1) as f64;
            sides.entry((node, right)).or_default().push((key, link, end));
        }
    }
    let nowhere = Port { side: Side::Left, place: 0, of: 1 };
    let mut ports: Vec<Option<[Port; 2]>> = edges.iter().map(|edge| edge.map(|_| [nowhere; 2])).collect();
    for ((_, right), mut ends) in sides {
        ends.sort_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)));
        let of = ends.len();
        for (place, (_, link, end)) in ends.into_iter().enumerate() {
            if let Some(pair) = &mut ports[link] {
                pair[end] = Port { side: if right { Side::Right } else { Side::Left }, place, of };
            }
        }
    }
    ports
}

fn box_width(node: &DiagramNode) -> f64 {
    let name = node.name.chars().count() as f64 * NAME_CHARACTER;
    let role = node.role.chars().count() as f64 * ROLE_CHARACTER;
    BOX_WIDTH.max(name.max(role) + 28.0)
}

/// Where each node is drawn, and the drawing's size.
fn place(diagram: &Diagram, columns: &[Vec<usize>], ports: &[Option<[Port; 2]>]) -> (Vec<Placed>, f64, f64) {
    let edges = edges(diagram);
    let most_ports = |node: usize| {
        edges.iter().zip(ports).filter_map(|(edge, pair)| edge.zip(*pair)).fold(0, |most, ((a, b), pair)| {
            most.max(if a == node { pair[0].of } else { 0 }).max(if b == node { pair[1].of } else { 0 })
        })
    };
    let height = |node: usize| BOX_HEIGHT.max(most_ports(node) as f64 * PORT + 12.0);
    let column_height = |column: &Vec<usize>| {
        column.iter().map(|n| height(*n)).sum::<f64>() + ROW_GAP * column.len().saturating_sub(1) as f64
    };
    let total = columns.iter().map(column_height).fold(0.0, f64::max) + 2.0 * MARGIN;
    let longest = diagram.links.iter().map(|l| l.a.1.chars().count() + l.b.1.chars().count()).max();
    let gap = (longest.unwrap_or(0) as f64 * LABEL_CHARACTER + 56.0).clamp(90.0, 260.0);
    let empty = Placed { x: 0.0, y: 0.0, width: 0.0, height: 0.0 };
    let mut placed = vec![empty; diagram.nodes.len()];
    let mut x = MARGIN;
    for column in columns {
        let width = column.iter().map(|n| box_width(&diagram.nodes[*n])).fold(BOX_WIDTH, f64::max);
        let mut y = (total - column_height(column)) / 2.0;
        for node in column {
            placed[*node] = Placed { x, y, width, height: height(*node) };
            y += height(*node) + ROW_GAP;
        }
        x += width + gap;
    }
    // Links within the last column bulge to its right.
    let last = columns.last().map(Vec::as_slice).unwrap_or_default();
    let inside = edges.iter().flatten().any(|(a, b)| last.contains(a) && last.contains(b));
    (placed, x - gap + MARGIN + if inside { gap } else { 0.0 }, total)
}

/// Each link as a curve with its two interface names.
fn wires(
    diagram: &Diagram,
    columns: &[Vec<usize>],
    ports: &[Option<[Port; 2]>],
    placed: &[Placed],
) -> Vec<Markup> {
    let column_of = |node: usize| columns.iter().position(|column| column.contains(&node)).unwrap_or(0);
    let point = |node: usize, port: Port| {
        let place = &placed[node];
        let x = if port.side == Side::Right { place.x + place.width } else { place.x };
        (x, place.middle() + (port.place as f64 - (port.of as f64 - 1.0) / 2.0) * PORT)
    };
    let mut drawn = Vec::new();
    for ((link, edge), pair) in diagram.links.iter().zip(edges(diagram)).zip(ports) {
        let (Some((a, b)), Some([at_a, at_b])) = (edge, *pair) else { continue };
        let ((ax, ay), (bx, by)) = (point(a, at_a), point(b, at_b));
        let reach = match column_of(a).abs_diff(column_of(b)) {
            0 => 70.0,
            _ => (bx - ax).abs() * 0.45,
        };
        let bend = |port: Port| if port.side == Side::Right { reach } else { -reach };
        let (ca, cb) = (ax + bend(at_a), bx + bend(at_b));
        let path = format!("M{ax:.1} {ay:.1}C{ca:.1} {ay:.1} {cb:.1} {by:.1} {bx:.1} {by:.1}");
        let label = |x: f64, y: f64, other_y: f64, port: Port, name: &str| {
            let (dx, anchor) = if port.side == Side::Right { (7.0, "start") } else { (-7.0, "end") };
            // A wire that rises from its end would run through a name above it.
            let dy = if port.place + 1 == port.of && other_y < y - 1.0 { 13.0 } else { -5.0 };
            html! {
                circle class="port" cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="3" {}
                text class="interface" x=(format!("{:.1}", x + dx)) y=(format!("{:.1}", y + dy))
                    text-anchor=(anchor) { (name) }
            }
        };
        drawn.push(html! {
            path class="wire" d=(path) {
                title { (link.a.0) ":" (link.a.1) " — " (link.b.0) ":" (link.b.1) }
            }
            (label(ax, ay, by, at_a, &link.a.1))
            (label(bx, by, ay, at_b, &link.b.1))
        });
    }
    drawn
}

/// A number for each role, which picks its colour, in the order of their first nodes.
fn roles(diagram: &Diagram) -> BTreeMap<&str, usize> {
    let mut roles = BTreeMap::new();
    for node in &diagram.nodes {
        let next = roles.len();
        roles.entry(node.role.as_str()).or_insert(next);
    }
    roles
}

fn node_box(node: &DiagramNode, place: &Placed, role: usize) -> Markup {
    let centre = format!("{:.1}", place.x + place.width / 2.0);
    let middle = place.middle();
    let name_y = if node.role.is_empty() { middle + 5.0 } else { middle - 2.0 };
    html! {
        g class="node" style=(PreEscaped(format!("--hue:{}", (210 + role * 67) % 360))) {
            rect x=(format!("{:.1}", place.x)) y=(format!("{:.1}", place.y)) rx="9"
                width=(format!("{:.1}", place.width)) height=(format!("{:.1}", place.height)) {}
            text class="name" x=(centre) y=(format!("{name_y:.1}")) text-anchor="middle" { (node.name) }
            @if !node.role.is_empty() {
                text class="role" x=(centre) y=(format!("{:.1}", middle + 15.0)) text-anchor="middle" {
                    (node.role)
                }
            }
        }
    }
}
