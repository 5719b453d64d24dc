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

    /// The limit that holds for a client of this name and user, and whose it is.
    pub(crate) fn limit_for(&self, client: Option<&str>, user: Option<&str>) -> Option<(Whom, Rate)> {
        if self.limits.is_empty() {
            return None;
        }
        let own = client.map(|name| Whom::Client(name.into()));
        let of = |whom: Whom| self.limits.get_key_value(&whom).map(|(whom, rate)| (whom.clone(), *rate));
        own.and_then(of).or_else(|| user.map(|name| Whom::User(name.into())).and_then(of))
    }

    fn table(&self, setting: OperatorSetting) -> &BTreeMap<Whom, Rate> {
        match setting {
            OperatorSetting::Limit => &self.limits,
            OperatorSetting::Grant => &self.grants,
        }
    }
}
