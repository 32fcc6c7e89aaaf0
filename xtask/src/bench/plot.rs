//! One picture per bench: bars with their spread and the target, on axes by powers of ten; a line for what grows.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

use super::report::short;

const WIDTH: u32 = 960;
/// Of a bar with its room, of what stands around the bars of one unit, and of a line.
const BAR: u32 = 34;
const AROUND: u32 = 84;
const LINE: u32 = 360;
/// Of the names at the left.
const NAMES: u32 = 470;
const TITLE: u32 = 64;

const LEGEND: &str = "bar: ratio of the medians · thin line: middle half of the rounds · upright mark: target \
                      (green reached, red missed, grey none)";

const GOOD: RGBColor = RGBColor(66, 133, 91);
const BAD: RGBColor = RGBColor(190, 84, 60);
const PLAIN: RGBColor = RGBColor(100, 116, 139);
const GRID: RGBColor = RGBColor(225, 225, 225);
const TARGET: RGBColor = RGBColor(20, 20, 20);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), String>;

/// The rows of one bench.
pub(super) fn draw(to: &Path, bench: &str, rows: &[&Value]) -> Drawn {
    let (lines, bars): (Vec<&Value>, Vec<&Value>) =
        rows.iter().copied().partition(|row| row["points"].as_array().is_some_and(|all| all.len() > 1));
    let mut units: Vec<&str> = Vec::new();
    for unit in bars.iter().filter_map(|row| row["unit"].as_str()) {
        if !units.contains(&unit) {
            units.push(unit);
        }
    }
    let of_unit = |unit: &str| bars.iter().copied().filter(|row| row["unit"] == unit).collect::<Vec<_>>();
    let high = |unit: &str| AROUND + BAR * of_unit(unit).len() as u32;
    let height = TITLE + units.iter().map(|unit| high(unit)).sum::<u32>() + LINE * lines.len() as u32;
    let root = SVGBackend::new(to, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).map_err(shown)?;
    root.titled(&format!("cargo xtask bench {bench}"), ("sans-serif", 20)).map_err(shown)?;
    let style = ("sans-serif", 12).into_font().color(&PLAIN).pos(Pos::new(HPos::Center, VPos::Top));
    root.draw_text(LEGEND, &style, (WIDTH as i32 / 2, 38)).map_err(shown)?;
    let (_, mut rest) = root.split_vertically(TITLE);
    for unit in units {
        let (panel, below) = rest.split_vertically(high(unit));
        draw_bars(&panel, unit, &of_unit(unit))?;
        rest = below;
    }
    for row in lines {
        let (panel, below) = rest.split_vertically(LINE);
        draw_line(&panel, row)?;
        rest = below;
    }
    root.present().map_err(|why| format!("{}: {why}", to.display()))
}

fn shown(why: impl std::fmt::Display) -> String {
    why.to_string()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(f64::NAN)
}

fn goal(row: &Value) -> Option<f64> {
    row["target"]["at_most"].as_f64().or_else(|| row["target"]["at_least"].as_f64())
}

fn colour(row: &Value) -> RGBColor {
    row["reached"].as_bool().map_or(PLAIN, |reached| if reached { GOOD } else { BAD })
}

fn name(row: &Value) -> String {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    match text("against") {
        "" => text("what").to_owned(),
        against => format!("{} / {against}", text("what")),
    }
}

/// A range by powers of ten that has room for all of these.
fn around(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    if low > high {
        return (0.5, 2.0);
    }
    (low / 1.3, high * 1.6)
}

/// 1, 2, 5, 10, 20 … between these; powers of ten alone where that would be a crowd.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let tens = || low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = |digits: &'static [u32]| {
        let read = |(ten, digit): (i32, &u32)| format!("{digit}e{ten}").parse().ok();
        let all = tens().flat_map(move |ten| digits.iter().map(move |digit| (ten, digit)));
        all.filter_map(read).filter(|tick| (low..=high).contains(tick)).collect::<Vec<f64>>()
    };
    let many = all(&[1, 2, 5]);
    if many.len() <= 8 { many } else { all(&[1]) }
}

fn draw_bars(area: &Area<'_>, unit: &str, rows: &[&Value]) -> Drawn {
    // a ratio is seen from 1
    let one = if unit.starts_with("x ") { Some(1.0) } else { None };
    let all = rows
        .iter()
        .flat_map(|row| ["value", "low", "high"].map(|part| number(row, part)).into_iter().chain(goal(row)));
    let (low, high) = around(all.chain(one));
    let count = rows.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, NAMES)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d((low..high).log_scale(), 0.0..count)
        .map_err(shown)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(0)
        .y_labels(0)
        .x_label_formatter(&|_| String::new())
        .x_desc(unit)
        .axis_desc_style(("sans-serif", 12))
        .draw()
        .map_err(shown)?;
    let here = |at: (i32, i32), right: i32, down: i32| {
        let (x, y) = area.get_base_pixel();
        (at.0 - x + right, at.1 - y + down)
    };
    let write = |text: &str, at: (i32, i32), across: HPos, along: VPos| {
        let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(across, along));
        area.draw_text(text, &style, at).map_err(shown)
    };
    for tick in ticks(low, high) {
        let upright = [(tick, 0.0), (tick, count)];
        chart.draw_series([PathElement::new(upright, GRID)]).map_err(shown)?;
        let foot = here(chart.backend_coord(&(tick, 0.0)), 0, 6);
        write(&format!("{tick}"), foot, HPos::Center, VPos::Top)?;
    }
    let from = one.unwrap_or(low);
    for (index, row) in rows.iter().enumerate() {
        // the first at the top
        let at = count - 1.0 - index as f64;
        let value = number(row, "value");
        let bar = Rectangle::new([(from, at + 0.75), (value, at + 0.25)], colour(row).filled());
        chart.draw_series([bar]).map_err(shown)?;
        let spread = [(number(row, "low"), at + 0.5), (number(row, "high"), at + 0.5)];
        chart.draw_series([PathElement::new(spread, TARGET.stroke_width(2))]).map_err(shown)?;
        if let Some(goal) = goal(row) {
            let mark = [(goal, at + 0.9), (goal, at + 0.1)];
            chart.draw_series([PathElement::new(mark, TARGET.stroke_width(3))]).map_err(shown)?;
        }
        write(
            &cut(&name(row)),
            here(chart.backend_coord(&(low, at + 0.5)), -8, 0),
            HPos::Right,
            VPos::Center,
        )?;
        let end = value.max(number(row, "high")).max(from).max(goal(row).unwrap_or(from));
        write(&short(value), here(chart.backend_coord(&(end, at + 0.5)), 6, 0), HPos::Left, VPos::Center)?;
    }
    Ok(())
}

/// As much of it as there is room for.
fn cut(name: &str) -> String {
    const MOST: usize = 78;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

fn draw_line(area: &Area<'_>, row: &Value) -> Drawn {
    let at = |point: &Value, index: usize| point[index].as_f64().unwrap_or(f64::NAN);
    let points: Vec<[f64; 4]> = row["points"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|point| [0, 1, 2, 3].map(|index| at(point, index)))
        .collect();
    let (left, right) = around(points.iter().map(|point| point[0]));
    let (low, high) = around(points.iter().flat_map(|point| point[1..].to_vec()).chain(goal(row)));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .caption(name(row), ("sans-serif", 14))
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .set_label_area_size(LabelAreaPosition::Bottom, 36)
        .build_cartesian_2d((left..right).log_scale(), (low..high).log_scale())
        .map_err(shown)?;
    chart
        .configure_mesh()
        .x_label_formatter(&|at| short(*at))
        .y_label_formatter(&|at| short(*at))
        .y_desc(row["unit"].as_str().unwrap_or_default())
        .label_style(("sans-serif", 12))
        .draw()
        .map_err(shown)?;
    for [at, _, low, high] in &points {
        let spread = [(*at, *low), (*at, *high)];
        chart.draw_series([PathElement::new(spread, TARGET.stroke_width(2))]).map_err(shown)?;
    }
    let line = points.iter().map(|[at, ratio, ..]| (*at, *ratio));
    chart.draw_series(LineSeries::new(line, colour(row).stroke_width(2)).point_size(4)).map_err(shown)?;
    if let Some(goal) = goal(row) {
        let mark = [(left, goal), (right, goal)];
        chart.draw_series([PathElement::new(mark, TARGET.stroke_width(1))]).map_err(shown)?;
    }
    Ok(())
}
