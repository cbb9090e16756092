//! A quantity over time as an inline SVG, with numbered marks where something was done on purpose.

use plotters::prelude::*;

use super::Error;
use super::model::{Mark, Series};

/// Size in pixels; the page scales it.
const SIZE: (u32, u32) = (1120, 250);

/// The colours that the chart is drawn in. The page's style sheet replaces them by their names, for light and dark.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const FAULT: RGBColor = RGBColor(3, 3, 3);
const LINES: [RGBColor; 4] = [RGBColor(4, 4, 4), RGBColor(5, 5, 5), RGBColor(6, 6, 6), RGBColor(7, 7, 7)];

/// Draws series of one unit. Times are seconds from 0 to `until`.
pub(super) fn chart(series: &[&Series], marks: &[Mark], until: f64) -> Result<String, Error> {
    let mut svg = String::new();
    draw(&mut svg, series, marks, until).map_err(|e| Error::Form { form: "chart", cause: e.to_string() })?;
    // The page decides the size; a fixed one would not scale.
    let (width, height) = SIZE;
    let fixed = format!("<svg width=\"{width}\" height=\"{height}\" ");
    Ok(svg.replacen(&fixed, "<svg class=\"chart\" role=\"img\" ", 1))
}

fn draw(
    svg: &mut String,
    series: &[&Series],
    marks: &[Mark],
    until: f64,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let values = series.iter().flat_map(|s| &s.points);
    let until = values.clone().map(|point| point.0).fold(until, f64::max).max(0.001);
    let top = values.map(|point| point.1).fold(0.0, f64::max).max(1.0) * 1.18;
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let unit = series.first().map_or("", |s| s.unit.as_str());
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..until, 0.0..top)?;
    let text = |size: i32| TextStyle::from(("sans-serif", size).into_font()).color(&INK);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(13))
        .axis_desc_style(text(13))
        .x_labels(12)
        .y_labels(6)
        .x_desc("seconds")
        .y_desc(unit)
        .x_label_formatter(&|value: &f64| short(*value))
        .y_label_formatter(&|value: &f64| short(*value))
        .draw()?;
    for mark in marks {
        let end = mark.until.unwrap_or(mark.at).min(until);
        chart.draw_series([Rectangle::new([(mark.at, 0.0), (end, top)], FAULT.mix(0.16).filled())])?;
    }
    for (line, colour) in series.iter().zip(LINES.iter().cycle()) {
        let points = line.points.iter().copied();
        chart.draw_series(AreaSeries::new(points.clone(), 0.0, colour.mix(0.1)))?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    for (n, mark) in marks.iter().enumerate() {
        let line = DashedLineSeries::new([(mark.at, 0.0), (mark.at, top)], 5, 4, FAULT.stroke_width(1));
        chart.draw_series(line)?;
        let badge = EmptyElement::at((mark.at, top))
            + Circle::new((0, 11), 9, FAULT.filled())
            + Text::new(
                (n + 1).to_string(),
                (0, 11),
                TextStyle::from(("sans-serif", 12).into_font()).color(&WHITE).pos(
                    plotters::style::text_anchor::Pos::new(
                        plotters::style::text_anchor::HPos::Center,
                        plotters::style::text_anchor::VPos::Center,
                    ),
                ),
            );
        chart.draw_series([badge])?;
    }
    area.present()
}

/// A number with as many digits as it needs.
fn short(value: f64) -> String {
    if value.abs() >= 10_000.0 {
        format!("{}k", short(value / 1000.0))
    } else if (value - value.round()).abs() < 1e-9 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}
