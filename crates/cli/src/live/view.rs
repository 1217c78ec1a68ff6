//! Draws the live view.

use super::model::Live;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Bar, BarChart, Block, Chart, Dataset, Gauge, GraphType, Paragraph};

/// Draws everything into the frame.
pub fn draw(live: &Live, frame: &mut Frame) {
    // Bars of equal length carry no information.
    let noise_lines = match (live.uniform_noise(), live.allocation.is_empty()) {
        (Some(_), true) => 1,
        (None, true) if live.noise.is_empty() => 0,
        _ => 12,
    };
    let [head, gauge, charts, noise, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(6),
        Constraint::Max(noise_lines),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let speed = live.speed.map_or(String::new(), |speed| format!("   {speed:.1} examples/s"));
    let left = live.time_left().map_or(String::new(), |left| format!("   {left}"));
    let title = Line::from(vec![live.title.clone().bold(), format!("   {}", live.method).into()]);
    frame.render_widget(
        Paragraph::new(vec![title, Line::from(format!("{}{speed}{left}", live.budget()))]),
        head,
    );
    let share = live.step as f64 / live.steps.max(1) as f64;
    let label = format!("step {} of {}, epoch {}", live.step, live.steps, live.epoch.max(1));
    let bar = Gauge::default().ratio(share.clamp(0.0, 1.0)).label(label).gauge_style(Color::Blue);
    frame.render_widget(bar, gauge);
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(charts);
    curve(frame, left, ("loss", ""), &live.losses, live.steps, Marker::Braille);
    let metric = if live.metric.is_empty() { ("validation", "") } else { live.name_and_unit() };
    curve(frame, right, metric, &live.measured, live.steps, Marker::Dot);
    let uniform = live.uniform_noise();
    if let (Some(multiplier), true) = (uniform, live.allocation.is_empty()) {
        let text = format!("noise multiplier {multiplier:.4} in every step");
        frame.render_widget(Line::from(text), noise);
    } else if live.allocation.is_empty() {
        schedule(frame, noise, live);
    } else if uniform.is_some() {
        allocation(frame, noise, live);
    } else {
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(noise);
        schedule(frame, left, live);
        allocation(frame, right, live);
    }
    let end = live.ended.clone().unwrap_or_else(|| "press q to close this view".to_owned());
    frame.render_widget(Line::from(end).dim(), foot);
}

/// A curve of (step, value), with a title and the unit of its values.
fn curve(
    frame: &mut Frame,
    area: Rect,
    (title, unit): (&str, &str),
    points: &[(f64, f64)],
    steps: u64,
    marker: Marker,
) {
    let (low, high) = points
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &(_, y)| (low.min(y), high.max(y)));
    let (low, high) = match (low, high) {
        (low, high) if low < high => (low, high),
        (value, _) if value.is_finite() => (value - 0.5, value + 0.5),
        _ => (0.0, 1.0),
    };
    let last = points.last().map_or(String::new(), |(_, y)| format!(" {y:.4}{unit}"));
    let right = steps.max(1) as f64;
    let set = Dataset::default()
        .marker(marker)
        .graph_type(GraphType::Line)
        .style(Style::new().cyan())
        .data(points);
    let chart = Chart::new(vec![set])
        .block(Block::bordered().title(format!("{title}{last}")))
        .x_axis(Axis::default().bounds([0.0, right]).labels(["0".to_owned(), format!("{steps}")]))
        .y_axis(
            Axis::default().bounds([low, high]).labels([format!("{low:.3}"), format!("{high:.3}")]),
        );
    frame.render_widget(chart, area);
}

/// The noise of each epoch, with the current one marked.
fn schedule(frame: &mut Frame, area: Rect, live: &Live) {
    if live.noise.is_empty() {
        return;
    }
    let block = Block::bordered().title("noise multiplier by epoch");
    // The epochs around the current one that fit.
    let room = (usize::from(area.width.saturating_sub(2)) / 8).max(1);
    let now = (live.epoch.max(1) - 1) as usize;
    let first = now.saturating_sub(room / 2).min(live.noise.len().saturating_sub(room));
    let top = live.noise.iter().copied().fold(0.0, f64::max);
    let bars: Vec<Bar> = (first..live.noise.len().min(first + room))
        .map(|epoch| {
            let noise = live.noise[epoch];
            let style = if epoch == now { Style::new().yellow() } else { Style::new().blue() };
            Bar::with_label(format!("{}", epoch + 1), (1000.0 * noise / top) as u64)
                .text_value(format!("{noise:.3}"))
                .style(style)
                .value_style(style.reversed())
        })
        .collect();
    frame.render_widget(
        BarChart::vertical(bars).bar_width(7).bar_gap(1).max(1000).block(block),
        area,
    );
}

/// The parameters with the least and the most noise.
fn allocation(frame: &mut Frame, area: Rect, live: &Live) {
    let mut sorted: Vec<&(String, f64)> = live.allocation.iter().collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let room = usize::from(area.height.saturating_sub(2));
    let hidden = sorted.len().saturating_sub(room);
    if hidden > 0 {
        // The middle is the least interesting part.
        let from = room / 2;
        sorted.drain(from..from + hidden);
    }
    let width = usize::from(area.width.saturating_sub(2));
    let lines: Vec<Line> = sorted
        .iter()
        .map(|(name, noise)| {
            let space = width.saturating_sub(7);
            let skipped = name.chars().count().saturating_sub(space);
            let end: String = name.chars().skip(skipped).collect();
            Line::from(format!("{end:space$} {noise:>6.2}"))
        })
        .collect();
    let title = format!("noise of {} parameters, relative to the mean", live.allocation.len());
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

#[cfg(test)]
mod tests {
    use super::super::model::{Point, seconds_left};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;
    use undertone_run::{ClassificationMetrics, Metrics, Record};

    fn shown(live: &Live, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(live, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y) + "\n").collect()
    }

    fn record(step: u64, loss: f64) -> Record {
        Record {
            step,
            epoch: 1 + (step - 1) / 10,
            units: 20,
            loss: Some(loss),
            learning_rate: 1e-3,
            gradient_norm: None,
            clipped: None,
            epsilon: None,
            validation: None,
            released: None,
            noise_by_parameter: Vec::new(),
            clip: None,
        }
    }

    fn live() -> Live {
        let mut live = Live {
            title: "runs/first".into(),
            method: "anadp, ewpba schedule".into(),
            target: Some(8.0),
            ..Live::default()
        };
        live.ready(vec![1.5, 1.25, 1.0], 0, 30);
        for step in 1..=12 {
            let mut record = record(step, 1.0 / step as f64);
            if step == 10 {
                record.epsilon = Some(2.34567);
                record.validation = Some(Metrics::Classification(ClassificationMetrics {
                    examples: 4,
                    accuracy: 0.75,
                    f1: 0.75,
                    loss: 0.5,
                    confusion: Vec::new(),
                }));
                record.noise_by_parameter =
                    vec![("block.0.weight".to_owned(), 0.5), ("head.bias".to_owned(), 2.25)];
            }
            live.add(&Point::from(&record));
        }
        live.speed = Some(41.25);
        live.seconds_left = seconds_left(Duration::from_secs(24), 0, 12, 30);
        live
    }

    #[test]
    fn bars_that_would_all_be_alike_are_not_drawn() {
        let mut uniform = live();
        uniform.allocation.clear();
        uniform.noise = vec![1.25; 3];
        let screen = shown(&uniform, 100, 30);
        assert!(screen.contains("noise multiplier 1.2500 in every step"), "{screen}");
        assert!(!screen.contains("by epoch"), "{screen}");
        uniform.noise.clear();
        assert!(!shown(&uniform, 100, 30).contains("noise"), "a non-private run has none");
    }

    #[test]
    fn loss_metric_budget_speed_and_noise_are_on_the_screen() {
        let screen = shown(&live(), 100, 30);
        for text in [
            "runs/first   anadp, ewpba schedule",
            "ε 2.3457 of 8   41.2 examples/s   36 s left",
            "step 12 of 30, epoch 2",
            "loss 0.0833",
            "accuracy 75.0000 %",
            "noise multiplier by epoch",
            "1.250",
            "noise of 2 parameters, relative to the mean",
            "block.0.weight",
            "2.25",
            "press q to close this view",
        ] {
            assert!(screen.contains(text), "{text} is missing in\n{screen}");
        }
        assert!(screen.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)), "there is a curve");
    }

    /// Nothing is known yet, there is hardly any space, and ε is not a guarantee.
    #[test]
    fn any_run_fits_any_screen() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 80)] {
            shown(&Live::default(), width, height);
            shown(&live(), width, height);
        }
        let mut seeded = live();
        seeded.caveat = Some("no guarantee: the seed is known");
        assert!(
            shown(&seeded, 100, 30).contains("ε 2.3457 of 8 (no guarantee: the seed is known)")
        );
    }

    #[test]
    fn programs_are_told_the_same_in_json() {
        let standing = serde_json::to_value(live().standing()).unwrap();
        assert_eq!(
            (&standing["step"], &standing["steps"], &standing["epoch"]),
            (&12.into(), &30.into(), &2.into())
        );
        assert_eq!(
            (&standing["metric"], &standing["value"]),
            (&"accuracy, %".into(), &75.0.into())
        );
        assert_eq!(
            (&standing["epsilon"], &standing["target_epsilon"]),
            (&2.34567.into(), &8.0.into())
        );
        assert!(standing["ended"].is_null() && standing["examples_per_second"] == 41.25);
    }

    #[test]
    fn a_run_that_is_resumed_forgets_what_comes_after() {
        let mut live = live();
        live.add(&Point::from(&record(5, 0.5)));
        assert_eq!((live.step, live.losses.len(), live.measured.len()), (5, 5, 0));
    }
}
