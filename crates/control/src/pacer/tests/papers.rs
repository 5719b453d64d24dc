//! The papers' presets against the papers' lines, written down a second time and as plainly as possible: 200 timeouts each,
//! with losses, collisions, denials and silence in between, and the noise drawn from the same numbers.

use super::*;

/// Algorithms 1, 2 and 3, with the readings of CONTROL §12.
struct Lines {
    preset: Preset,
    noise: Noise,
    ast: f64,
    rbt: f64,
    durations: Vec<f64>,
    total: f64,
    answered: bool,
}

const ALPHA: f64 = 2.0;
const DELTA: f64 = 1.0;
const T: f64 = 40.0;
const N: f64 = 3.0;
const T_MIN: f64 = 0.1;
const BETA: f64 = 2.0;
const T_SMALL: f64 = 0.1;
/// Patience. (The papers have none; with the 60 s of the presets the mean would follow the few that were waited for.)
const PATIENCE: f64 = 0.3;

impl Lines {
    fn new(preset: Preset, noise: Noise) -> Self {
        Self { preset, noise, ast: 10.0, rbt: 0.0, durations: Vec::new(), total: 10.0, answered: false }
    }

    /// doQuery took so long (none: there was no answer; some without k: it was denied) and found k losses.
    fn next(&mut self, duration: Option<f64>, losses: Option<u32>, rng: &mut impl Rng) -> f64 {
        let name = self.preset.name();
        if let Some(k) = losses {
            self.active_control(k, name.contains("algorithm"));
        }
        if losses.is_some() || duration.is_none() {
            self.durations.push(duration.unwrap_or(PATIENCE));
        }
        let average = self.durations.iter().sum::<f64>() / self.durations.len().max(1) as f64;
        let is_small = name == "active-s19" && self.answered && self.total < T_SMALL;
        let is_good = losses.is_some() && duration.is_some_and(|duration| duration <= average) && !is_small;
        if name.starts_with("adaptive") {
            self.rbt = 0.0;
        } else {
            self.back_off(is_good, average, rng);
        }
        self.answered |= losses.is_some();
        self.total = (self.ast + self.rbt).max(0.01);
        self.total
    }

    fn active_control(&mut self, k: u32, is_algorithm_2: bool) {
        if k > 0 {
            self.ast = (self.ast / ALPHA).max(0.01);
        } else if !is_algorithm_2 {
            self.ast += DELTA;
        } else if T - (self.ast + N * DELTA) > 0.0 {
            self.ast += N * DELTA;
        }
    }

    fn back_off(&mut self, is_good: bool, average: f64, rng: &mut impl Rng) {
        if is_good {
            self.rbt = 0.0;
            return;
        }
        let before = if self.rbt == 0.0 { T_MIN } else { self.rbt };
        let t_max = match self.preset {
            Preset::ActiveP18 | Preset::Algorithm1P18 => 60.0,
            Preset::ActiveS19 => 5.0 * average,
            _ => f64::min(60.0, 5.0 * average),
        };
        let variation = if self.noise == Noise::Normal { libm::sqrt(before) * draw::normal(rng) } else { 0.0 };
        self.rbt = ((before * BETA).min(t_max) + variation).max(0.0);
    }
}

#[test]
fn two_hundred_timeouts_of_each_preset_are_those_of_the_papers() {
    for (preset, noise) in Preset::ALL[6..].iter().flat_map(|preset| [(*preset, Noise::Off), (*preset, Noise::Normal)])
    {
        let plan = plan(preset, |config| {
            config.ast.given.before_decrease = Some(Duration::from_secs_f64(T));
            config.ast.given.growths = Some(N);
            config.back_off.noise = noise;
            config.request_timeout = Duration::from_secs_f64(PATIENCE);
        });
        let (mut pacer, mut lines) = (Pacer::new(&plan), Lines::new(preset, noise));
        let (mut of_pacer, mut of_lines, mut story) = (rng(5), rng(5), rng(9));
        let mut now = Timestamp::ZERO;
        let (mut collisions, mut lossy) = (0, 0);
        for number in 0..200 {
            let millis = 20 + (draw::unit(&mut story) * 200.0) as u64;
            let k = u32::from(draw::unit(&mut story) < 0.3) * 2;
            let (outcome, duration, losses) = match (draw::unit(&mut story) * 20.0) as u32 {
                0 => (Outcome::TimedOut, None, None),
                1 => (Outcome::denied(), Some(0.001), None),
                _ => (answered(millis, k, Hints::default()), Some(millis as f64 / 1000.0), Some(k)),
            };
            let delay = pacer.on_outcome(now, &outcome, &mut of_pacer).unwrap().as_secs_f64();
            let expected = lines.next(duration, losses, &mut of_lines);
            assert!(
                (delay / expected - 1.0).abs() < 1e-6,
                "{preset} {noise}, timeout {number}: {delay}, not {expected}"
            );
            let told = pacer.snapshot();
            collisions += u32::from(told.congested);
            lossy += u32::from(k > 0);
            now = now + Duration::from_secs_f64(delay);
        }
        assert!(collisions > 50 && lossy > 40, "{preset}: {collisions} collisions, {lossy} with losses");
    }
}
