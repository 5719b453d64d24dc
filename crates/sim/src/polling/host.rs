//! The modelled machine: how long a service takes, and how much of the capacity is there.

use super::config::{Change, Host, Service};
use crate::chance::Stream;

impl Host {
    /// The share of the capacity that is there at this time.
    pub fn factor(&self, now: f64) -> f64 {
        match self.change {
            Change::Dip { from, length, factor } if (from..from + length).contains(&now) => factor,
            Change::Flap { period, factor } if (now / period).fract() >= 0.5 => factor,
            _ => 1.0,
        }
    }

    /// Mean service time of one server at this time.
    pub fn mean_service(&self, now: f64) -> f64 {
        f64::from(self.servers) / (self.capacity * self.factor(now))
    }

    /// Draws a service time.
    pub fn draw(&self, now: f64, chance: &mut Stream) -> f64 {
        let mean = self.mean_service(now);
        match self.service {
            Service::Exponential => chance.exponential(mean),
            Service::Fixed => mean,
            Service::LogNormal(cv) => {
                let variance = (cv * cv).ln_1p();
                mean * (variance.sqrt() * chance.normal() - variance / 2.0).exp()
            }
        }
    }

    /// How long it takes what would take this long if the capacity stayed as it is at this time: a host that is slow only for
    /// a part of it goes on faster.
    pub fn lasts(&self, now: f64, planned: f64) -> f64 {
        let (mut at, mut work) = (now, planned * self.factor(now));
        while let Some(change) = self.next_change(at) {
            let done = (change - at) * self.factor(at);
            if done >= work {
                break;
            }
            (at, work) = (change, work - done);
        }
        if at == now { planned } else { at - now + work / self.factor(at) }
    }

    /// When the capacity is next another than now.
    fn next_change(&self, now: f64) -> Option<f64> {
        match self.change {
            Change::Dip { from, length, .. } => [from, from + length].into_iter().find(|change| *change > now),
            Change::Flap { period, .. } => Some(((now / period * 2.0).floor() + 1.0) * period / 2.0),
            Change::None => None,
        }
    }

    /// When the last change of a dip is over; zero without one.
    pub fn change_ends(&self) -> f64 {
        match self.change {
            Change::Dip { from, length, .. } => from + length,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polling::Polling;

    #[test]
    fn service_times_have_the_mean_and_the_variation_they_were_asked_for() {
        for (service, cv) in [(Service::Exponential, 1.0), (Service::Fixed, 0.0), (Service::LogNormal(3.0), 3.0)] {
            let host = Host { service, servers: 2, ..Polling::default().host };
            let mut chance = Stream::of(1, "service");
            let draws: Vec<f64> = (0..400_000).map(|_| host.draw(0.0, &mut chance)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((mean / 0.01 - 1.0).abs() < 0.03, "{service:?}: {mean}");
            assert!((variance.sqrt() / mean - cv).abs() < 0.05 * (1.0 + 5.0 * cv), "{service:?}: {variance}");
        }
    }

    #[test]
    fn what_begins_in_a_dip_goes_on_faster_after_it() {
        let mut host = Polling::default().host;
        host.change = Change::Dip { from: 10.0, length: 5.0, factor: 0.1 };
        for (now, planned, lasts) in
            [(0.0, 1.0, 1.0), (9.0, 2.0, 6.5), (14.0, 0.5, 0.5), (14.0, 10.0, 1.9), (9.5, 0.75, 3.0), (15.0, 1.0, 1.0)]
        {
            assert!((host.lasts(now, planned) - lasts).abs() < 1e-9, "{now} {planned}: {}", host.lasts(now, planned));
        }
        host.change = Change::Flap { period: 60.0, factor: 0.3 };
        // Half a minute at full speed and half a minute at 0.3.
        assert!((host.lasts(0.0, 39.0) - 60.0).abs() < 1e-9, "{}", host.lasts(0.0, 39.0));
    }

    #[test]
    fn capacity_follows_the_plan() {
        let mut host = Polling::default().host;
        host.change = Change::Dip { from: 10.0, length: 5.0, factor: 0.1 };
        assert_eq!([9.0, 10.0, 14.9, 15.0].map(|at| host.factor(at)), [1.0, 0.1, 0.1, 1.0]);
        host.change = Change::Flap { period: 60.0, factor: 0.3 };
        assert_eq!([0.0, 29.0, 31.0, 61.0].map(|at| host.factor(at)), [1.0, 1.0, 0.3, 1.0]);
    }
}
