//! A chart axis: its range, scale and ticks.

/// The x or y axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Label of the axis.
    pub name: String,
    pub from: f64,
    pub to: f64,
    logarithmic: bool,
    format: fn(f64) -> String,
    /// Ticks with names instead of numbers, in order.
    names: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(name: &str, from: f64, to: f64, format: fn(f64) -> String) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { name: name.to_owned(), from, to, logarithmic: false, format, names: Vec::new() }
    }

    /// A linear axis whose ticks have names.
    pub fn named(name: &str, from: f64, to: f64, names: Vec<(f64, String)>) -> Self {
        Self { names, ..Self::linear(name, from, to, |x| x.to_string()) }
    }

    /// A logarithmic axis; both ends must be above 0.
    pub fn logarithmic(name: &str, from: f64, to: f64, format: fn(f64) -> String) -> Self {
        let to = if to > from { to } else { 10.0 * from };
        Self { name: name.to_owned(), from, to, logarithmic: true, format, names: Vec::new() }
    }

    /// A linear axis that spans the numbers, with a margin at both ends.
    pub fn around(
        name: &str,
        numbers: impl Iterator<Item = f64>,
        format: fn(f64) -> String,
    ) -> Self {
        let (least, most) = numbers
            .filter(|x| x.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| {
                (least.min(x), most.max(x))
            });
        if least > most {
            return Self::linear(name, 0.0, 1.0, format);
        }
        let margin = (0.08 * (most - least)).max(1e-3 * most.abs()).max(1e-9);
        // The axis of a non-negative quantity does not go below 0.
        let from = if least >= 0.0 { (least - margin).max(0.0) } else { least - margin };
        Self::linear(name, from, most + margin, format)
    }

    /// Position of a number along the axis: 0 at its start, 1 at its end.
    pub fn share(&self, number: f64) -> f64 {
        let of = |x: f64| if self.logarithmic { x.max(f64::MIN_POSITIVE).log10() } else { x };
        (of(number) - of(self.from)) / (of(self.to) - of(self.from))
    }

    /// Label of a number: the name of the nearest named tick, or the number.
    pub fn label(&self, number: f64) -> String {
        let distance = |tick: &&(f64, String)| (tick.0 - number).abs();
        let nearest = self.names.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or_else(|| (self.format)(number), |(_, name)| name.clone())
    }

    /// The named ticks, or about `about` round tick values within the range.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        if !self.names.is_empty() {
            return self.names.iter().map(|tick| tick.0).collect();
        }
        let inside = |x: &f64| (-1e-9..=1.0 + 1e-9).contains(&self.share(*x));
        let about = about.max(2) as f64;
        if !self.logarithmic {
            let step = round_step((self.to - self.from) / about);
            let first = (self.from / step - 1e-9).ceil() as i64;
            return (first..first + 100).map(|i| i as f64 * step).take_while(inside).collect();
        }
        let (from, to) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let decades = self.to.log10() - self.from.log10();
        let factors: &[f64] = if decades < 0.4 * about { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((decades / about).ceil() as i32).max(1);
        (from..=to)
            .filter(|decade| decade.rem_euclid(every) == 0)
            .flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)))
            .filter(inside)
            .collect()
    }
}

/// Tick spacing: the smallest 1, 2 or 5 times a power of ten of at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(x: f64) -> String {
        x.to_string()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            Axis::linear("x", 0.0, 1.0, plain).ticks(5),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(Axis::linear("x", 3.0, 77.0, plain).ticks(4), [20.0, 40.0, 60.0]);
        assert_eq!(Axis::logarithmic("x", 0.5, 9.0, plain).ticks(6), [0.5, 1.0, 2.0, 5.0]);
        let decades = Axis::logarithmic("x", 1e-12, 1.0, plain).ticks(5);
        assert_eq!(decades, [1e-12, 1e-9, 1e-6, 1e-3, 1.0]);
    }

    #[test]
    fn named_ticks_replace_numbers() {
        let names = vec![(0.0, "left".to_owned()), (1.0, "right".to_owned())];
        let axis = Axis::named("x", -0.5, 1.5, names);
        assert_eq!(axis.ticks(9), [0.0, 1.0]);
        assert_eq!((axis.label(0.2), axis.label(0.9)), ("left".to_owned(), "right".to_owned()));
    }

    #[test]
    fn degenerate_ranges_have_a_width() {
        for axis in [
            Axis::linear("x", 2.0, 2.0, plain),
            Axis::around("x", [5.0, 5.0].into_iter(), plain),
            Axis::around("x", [f64::NAN].into_iter(), plain),
            Axis::logarithmic("x", 1.0, 1.0, plain),
        ] {
            assert!(axis.to > axis.from && !axis.ticks(5).is_empty(), "{axis:?}");
            assert!(axis.share(axis.from) == 0.0 && axis.share(axis.to) == 1.0);
        }
    }
}
