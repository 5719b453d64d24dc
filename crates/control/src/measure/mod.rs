//! Samples in, estimate out. Each estimator is a few words of memory and a constant number of operations per sample.

mod average;
mod losses;
mod minimum;
mod spread;

pub(crate) use average::Average;
pub use average::AverageRule;
pub(crate) use losses::LossEstimator;
pub(crate) use minimum::WindowedMinimum;
pub use spread::Spread;
