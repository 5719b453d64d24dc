//! Names beside marks: none above another name or a mark, and not above a line if there is another place.

/// Pixels between a mark and its name.
const BESIDE: f64 = 7.0;
/// About the size of a letter of a name, in pixels: its width, and its height above and below the foot of the line.
const CHARACTER: f64 = 6.2;
const ABOVE: f64 = 9.0;
const BELOW: f64 = 3.0;
/// Half of the size of a mark.
const MARK: f64 = 4.0;
/// How far above and below a place is looked for, and by which steps.
const STEPS_MAX: u32 = 48;
const STEP: f64 = 6.0;

/// Left, right, top, bottom.
type Area = [f64; 4];

fn overlaps(one: &Area, other: &Area) -> bool {
    one[0] < other[1] && other[0] < one[1] && one[2] < other[3] && other[2] < one[3]
}

/// What stands in a figure, and the names that find room between.
#[derive(Debug)]
pub(super) struct Labels {
    /// Names and marks.
    taken: Vec<Area>,
    /// Lines: a name across one of them can be read.
    lines: Vec<Area>,
    /// From where to where names may stand.
    within: Area,
}

impl Labels {
    pub(super) fn within(left: f64, right: f64, [top, bottom]: [f64; 2]) -> Self {
        Self { taken: Vec::new(), lines: Vec::new(), within: [left, right, top, bottom] }
    }

    /// A mark that no name may cover.
    pub(super) fn avoid_mark(&mut self, at: f64, middle: f64) {
        self.taken.push([at - MARK, at + MARK, middle - MARK, middle + MARK]);
    }

    /// A text that stands there already, and ends at `right`.
    pub(super) fn avoid_text(&mut self, right: f64, foot: f64, text: &str) {
        self.taken.push([right - width(text), right, foot - ABOVE, foot + BELOW]);
    }

    /// A line across or down.
    pub(super) fn avoid_line(&mut self, [left, right]: [f64; 2], [top, bottom]: [f64; 2]) {
        self.lines.push([left - 1.0, right + 1.0, top - 1.0, bottom + 1.0]);
    }

    /// Where the name of a mark stands: beside it, or above or below, on the right or on the left, as near as there is room.
    pub(super) fn place(&mut self, at: f64, foot: f64, name: &str) -> (f64, f64) {
        let away = |step: u32| {
            let steps = f64::from(step.div_ceil(2)) * STEP;
            if step.is_multiple_of(2) { steps } else { -steps }
        };
        let sides = [at + BESIDE, at - BESIDE - width(name)];
        let places = || (0..=STEPS_MAX).flat_map(|step| sides.map(|left| (left, foot + away(step))));
        let area_of = |(left, foot): (f64, f64)| [left, left + width(name), foot - ABOVE, foot + BELOW];
        let is_within = |name: &Area| {
            let [left, right, top, bottom] = self.within;
            name[0] >= left && name[1] <= right && name[2] >= top - ABOVE && name[3] <= bottom + BELOW
        };
        let is_free = |place: &(f64, f64)| {
            let name = area_of(*place);
            is_within(&name) && !self.taken.iter().any(|other| overlaps(&name, other))
        };
        let is_clear = |place: &(f64, f64)| {
            let name = area_of(*place);
            is_free(place) && !self.lines.iter().any(|line| overlaps(&name, line))
        };
        let near = |place: &(f64, f64)| (place.1 - foot).abs() <= NEAR;
        let found = places()
            .filter(near)
            .find(is_clear)
            .or_else(|| places().filter(near).find(is_free))
            .or_else(|| places().find(is_clear))
            .or_else(|| places().find(is_free));
        let place = found.unwrap_or((sides[0], foot));
        self.taken.push(area_of(place));
        place
    }
}

/// A name is read across a line rather than far from its mark.
const NEAR: f64 = 30.0;

fn width(text: &str) -> f64 {
    CHARACTER * text.chars().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        Labels::within(0.0, 500.0, [0.0, 400.0])
    }

    #[test]
    fn names_of_marks_that_are_near_to_each_other_stand_apart() {
        let mut labels = labels();
        let places: Vec<(f64, f64)> = (0..6).map(|n| labels.place(100.0, 200.0 + f64::from(n), "a name")).collect();
        let areas: Vec<Area> =
            places.iter().map(|(left, foot)| [*left, left + width("a name"), foot - ABOVE, foot + BELOW]).collect();
        for (number, one) in areas.iter().enumerate() {
            assert!(areas[..number].iter().all(|other| !overlaps(one, other)), "{places:?}");
        }
        assert_eq!(labels.place(300.0, 200.0, "another"), (307.0, 200.0));
        let (left, _) = labels.place(480.0, 200.0, "another");
        assert!(left < 480.0, "on the other side");
        let (_, foot) = labels.place(300.0, 410.0, "another");
        assert!(foot <= 400.0, "{foot}: not in the axis");
    }

    #[test]
    fn no_name_covers_a_mark_or_a_text_and_a_line_only_if_there_is_no_other_place_near() {
        let mut labels = labels();
        labels.avoid_mark(130.0, 200.0);
        labels.avoid_text(400.0, 100.0, "at most 1.1");
        labels.avoid_line([0.0, 500.0], [300.0, 300.0]);
        assert_ne!(labels.place(100.0, 204.0, "a name"), (107.0, 204.0), "above the mark");
        assert_ne!(labels.place(350.0, 102.0, "a name"), (357.0, 102.0), "above the text");
        let (_, foot) = labels.place(140.0, 303.0, "a name");
        assert!(foot + BELOW <= 299.0 || foot - ABOVE >= 301.0, "{foot}: above the line");
        labels.avoid_line([0.0, 500.0], [0.0, 400.0]);
        assert_eq!(labels.place(240.0, 250.0, "a name"), (247.0, 250.0), "there are lines everywhere");
    }
}
