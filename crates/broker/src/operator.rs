//! What operators have set for single clients and users: limits, and grants. All shards have the same; the store keeps
//! both.

use std::collections::BTreeMap;

use tidegate_core::Whom;
use tidegate_core::settings::Rate;

use crate::limits::OPERATOR_LIMITS_MAX;

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorSetting {
    /// So much and no more, whatever was learned.
    Limit,
    /// So much comes first where something is scarce, and need not be learned.
    Grant,
}

/// All that is set.
#[derive(Debug, Default)]
pub(crate) struct OperatorSettings {
    limits: BTreeMap<Whom, Rate>,
    grants: BTreeMap<Whom, Rate>,
}

impl OperatorSettings {
    /// False: there is no room for another one.
    pub(crate) fn put(&mut self, setting: OperatorSetting, whom: &Whom, rate: Option<Rate>) -> bool {
        let table = match setting {
            OperatorSetting::Limit => &mut self.limits,
            OperatorSetting::Grant => &mut self.grants,
        };
        match rate {
            Some(_) if table.len() >= OPERATOR_LIMITS_MAX && !table.contains_key(whom) => return false,
            Some(rate) => drop(table.insert(whom.clone(), rate)),
            None => drop(table.remove(whom)),
        }
        true
    }

    pub(crate) fn list(&self, setting: OperatorSetting) -> Vec<(Whom, Rate)> {
        self.table(setting).iter().map(|(whom, rate)| (whom.clone(), *rate)).collect()
    }

    pub(crate) fn get(&self, setting: OperatorSetting, whom: &Whom) -> Option<Rate> {
        self.table(setting).get(whom).copied()
    }

    /// The limit that holds for a client of this name and user, and whose it is. The name is only claimed: it is no way out of
    /// the limit of the user.
    pub(crate) fn limit_for(&self, client: Option<&str>, user: Option<&str>) -> Option<(Whom, Rate)> {
        if self.limits.is_empty() {
            return None;
        }
        let own = client.map(|name| Whom::Client(name.into()));
        let of = |whom: Whom| self.limits.get_key_value(&whom).map(|(whom, rate)| (whom.clone(), *rate));
        let of_user = user.map(|name| Whom::User(name.into()));
        // The longer interval is the stricter limit.
        [of_user, own].into_iter().flatten().filter_map(of).max_by_key(|(_, rate)| rate.interval())
    }

    fn table(&self, setting: OperatorSetting) -> &BTreeMap<Whom, Rate> {
        match setting {
            OperatorSetting::Limit => &self.limits,
            OperatorSetting::Grant => &self.grants,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_that_is_only_claimed_is_no_way_out_of_the_limit_of_a_user() {
        let mut settings = OperatorSettings::default();
        let rate = |count| Rate::new(count, Duration::from_secs(1), count);
        let (gateway, ann) = (Whom::Client("gateway".into()), Whom::User("ann".into()));
        assert!(settings.put(OperatorSetting::Limit, &gateway, Some(rate(500))));
        assert!(settings.put(OperatorSetting::Limit, &ann, Some(rate(5))));
        assert_eq!(settings.limit_for(Some("gateway"), Some("ann")), Some((ann, rate(5))));
        assert_eq!(settings.limit_for(Some("gateway"), Some("bob")), Some((gateway.clone(), rate(500))));
        assert!(settings.put(OperatorSetting::Limit, &gateway, Some(rate(2))));
        assert_eq!(settings.limit_for(Some("gateway"), Some("ann")), Some((gateway, rate(2))));
        assert_eq!(settings.limit_for(Some("lamp"), None), None);
    }
}
