//! Names beside marks, none above another.

/// Pixels between a mark and its name.
const BESIDE: f64 = 7.0;
/// About the size of a name, in pixels.
const CHARACTER: f64 = 6.2;
const HEIGHT: f64 = 12.0;
/// A name that finds no room so far away stands above others.
const STEPS_MAX: u32 = 48;

/// The names that stand in a figure.
#[derive(Debug)]
pub(super) struct Labels {
    /// Left, right, and the foot of each.
    taken: Vec<(f64, f64, f64)>,
    /// How far to the right, and between which heights, names may stand.
    right: f64,
    heights: [f64; 2],
}

impl Labels {
    pub(super) fn within(right: f64, heights: [f64; 2]) -> Self {
        Self { taken: Vec::new(), right, heights }
    }

    /// Where the name of a mark stands: beside it, on the left if there is no room on the right, and above or below, as near as
    /// there is room.
    pub(super) fn place(&mut self, at: f64, foot: f64, name: &str) -> (f64, f64) {
        let width = CHARACTER * name.chars().count() as f64;
        let is_beyond = at + BESIDE + width > self.right;
        let left = if is_beyond { at - BESIDE - width } else { at + BESIDE };
        let right = left + width;
        let [top, bottom] = self.heights;
        let is_free = |foot: f64| {
            let overlaps =
                |(from, to, other): &(f64, f64, f64)| left < *to && *from < right && (foot - other).abs() < HEIGHT;
            (top..=bottom).contains(&foot) && !self.taken.iter().any(overlaps)
        };
        let away = |step: u32| {
            let steps = f64::from(step.div_ceil(2)) * HEIGHT / 2.0;
            if step.is_multiple_of(2) { steps } else { -steps }
        };
        let foot = (0..=STEPS_MAX).map(|step| foot + away(step)).find(|foot| is_free(*foot)).unwrap_or(foot);
        self.taken.push((left, right, foot));
        (left, foot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_marks_that_are_near_to_each_other_stand_apart() {
        let mut labels = Labels::within(500.0, [0.0, 400.0]);
        let places: Vec<(f64, f64)> = (0..6).map(|n| labels.place(100.0, 200.0 + f64::from(n), "a name")).collect();
        for (number, (_, foot)) in places.iter().enumerate() {
            assert!(places[..number].iter().all(|(_, other)| (foot - other).abs() >= HEIGHT), "{places:?}");
        }
        assert_eq!(labels.place(300.0, 200.0, "another"), (307.0, 200.0));
        let (left, _) = labels.place(480.0, 200.0, "another");
        assert!(left < 480.0, "on the other side");
        let (_, foot) = labels.place(300.0, 410.0, "another");
        assert!(foot <= 400.0, "{foot}: not in the axis");
    }
}
