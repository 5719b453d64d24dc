//! What the admin API asks of the process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use signal_hook::consts::SIGTERM;
use tidegate_admin::{
    AccessOverview, BridgeReport, Certificate, ClusterReport, Demo, ListenerState, ListenerStatus, ProcessControl,
    Reloaded, SettingInForce, SinkReport, TokenOverview, TokenWish, UserChange, UserDirectory,
};
use tidegate_broker::config::Listener;
use tidegate_broker::{ExtraMetric, ListenerReport};
use tidegate_space::Condition;
use tidegate_store::Health;
use tracing::error;

use super::{OtherDoor, RunningProcess};
use crate::config::backoff::BackOffMode;
use crate::config::keys::{KEYS, SettingKey, TakesEffect};
use crate::serve::CUT_OFF;
use crate::{backup, certificate, plan, rule_file, tokens, user_file};

impl ProcessControl for RunningProcess {
    fn reload(&self) -> Result<Reloaded, Vec<String>> {
        Self::reload(self)
    }

    fn backup(&self, to: &Path) -> Result<String, String> {
        let space = plan::space_dir(&self.started.options);
        let copy_space = |to: &Path| match self.space_store.get() {
            Some(store) => store.backup(to).map(Some),
            // Its doors are closed, so nobody has it.
            None => backup::copy_space(&space, to),
        };
        let users = plan::usual_password_file(&self.started.options);
        let parts = backup::copy(to, |to| self.handle.backup(to), copy_space, &users);
        let parts = parts.map_err(|error| format!("{error:#}"))?;
        Ok(parts.to_string())
    }

    fn drain(&self) {
        // The same way as from outside: one path to the end.
        if let Err(error) = signal_hook::low_level::raise(SIGTERM) {
            error!(event = "drain_failed", %error, "cannot signal this process");
        }
    }

    fn directory(&self) -> Option<UserDirectory> {
        self.now().directory.clone()
    }

    fn unready(&self) -> Option<&'static str> {
        if self.is_draining.load(Ordering::Relaxed) {
            return Some("draining");
        }
        if self.cluster().is_some_and(|report| report.trouble.is_some()) {
            return Some(CUT_OFF);
        }
        match self.space.get().map(tidegate_space::SpaceHandle::condition) {
            Some(Condition::Restarting) => return Some("the smart space begins anew"),
            Some(Condition::Down) => return Some("the smart space is down"),
            Some(Condition::Unsure) => return Some("the cluster's engine does not confirm this node"),
            Some(Condition::Serving) | None => {}
        }
        let space = self.space_store.get().and_then(|store| store.report()).map(|store| store.health);
        let healths = [self.handle.store().map(|store| store.health), space];
        let words = healths.each_ref().map(|health| health.as_ref().map(Health::word));
        match () {
            () if words.contains(&Some("failed")) => Some("the store cannot write"),
            () if words.contains(&Some("full")) => Some("the store is full"),
            () => None,
        }
    }

    fn settings(&self) -> Vec<SettingInForce> {
        let now = self.now();
        let setting = |key: &SettingKey| SettingInForce {
            path: key.path.to_owned(),
            value: (key.show)(&now.loaded.options),
            origin: now.loaded.origin(key.path).to_string(),
            about: key.about.trim().to_owned(),
            needs_restart: key.change == TakesEffect::Restart,
        };
        KEYS.iter().map(setting).collect()
    }

    fn access(&self) -> AccessOverview {
        user_file::overview(&self.now().loaded)
    }

    fn change_user(&self, change: &UserChange) -> Result<(), String> {
        let loaded = self.now().loaded.clone();
        let put_in_force = || self.reload().map(drop).map_err(|problems| anyhow::anyhow!(problems.join("; ")));
        user_file::change(&loaded, change, put_in_force).map_err(|error| format!("{error:#}"))
    }

    fn change_rules(&self, before: &str, text: &str) -> Result<(), String> {
        let loaded = self.now().loaded.clone();
        let put_in_force = || self.reload().map(drop).map_err(|problems| anyhow::anyhow!(problems.join("; ")));
        rule_file::change(&loaded, before, text, put_in_force).map_err(|error| format!("{error:#}"))
    }

    fn tokens(&self) -> TokenOverview {
        let now = self.now();
        tokens::overview(&now.loaded, now.tokens.as_deref())
    }

    fn make_token(&self, wish: &TokenWish) -> Result<String, String> {
        let now = self.now();
        tokens::make(&now.loaded, now.tokens.as_deref(), wish)
    }

    fn revoke_tokens(&self, user: &str) -> Result<(), String> {
        let loaded = self.now().loaded.clone();
        tokens::revoke(&loaded, user, || self.reload().map(drop).map_err(|problems| problems.join("; ")))
    }

    fn entry_metrics(&self) -> Vec<ExtraMetric> {
        let now = self.now();
        let of_tokens = now.tokens.as_ref().map(|tokens| tokens.metrics()).unwrap_or_default();
        let of_authority = now.authority.as_ref().map(|authority| authority.metrics()).unwrap_or_default();
        of_tokens.into_iter().chain(of_authority).collect()
    }

    fn certificates(&self) -> Vec<Certificate> {
        let (tls, blocks) = {
            let now = self.now();
            (now.loaded.options.tls.cert.clone(), now.loaded.listeners.clone())
        };
        let encrypted = self.listeners.iter().filter(|listener| listener.tls.is_some());
        let path = |listener: &Listener| {
            let own = blocks.iter().find(|block| block.name == listener.name).and_then(|block| block.cert.clone());
            own.or_else(|| tls.clone()).or_else(|| Some(listener.tls.as_ref()?.cert.clone()))
        };
        let shown = |listener: &Listener| {
            let (subject, expires) = certificate::describe(&path(listener)?);
            Some(Certificate { listener: listener.name.to_owned(), subject, expires })
        };
        let of_space = self
            .doors
            .get()
            .into_iter()
            .flatten()
            .filter(|(name, _, is)| matches!(*name, "https" | "ssaps" | "admin_https") && is.is_some());
        let shown_space = |(name, ..): &OtherDoor| {
            let (subject, expires) = certificate::describe(tls.as_deref()?);
            Some(Certificate { listener: (*name).to_owned(), subject, expires })
        };
        encrypted.filter_map(shown).chain(of_space.filter_map(shown_space)).collect()
    }

    fn configured_at(&self) -> Option<SystemTime> {
        Some(self.now().at)
    }

    fn doors(&self) -> Vec<ListenerStatus> {
        let open = self.handle.listeners();
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        let state = if is_draining { ListenerState::Draining } else { ListenerState::Open };
        let shown = |listener: &ListenerReport| ListenerStatus {
            name: listener.name,
            kind: listener.kind.name(),
            address: Some(listener.address),
            state,
            connections: Some(listener.connections),
        };
        let usual = plan::DOORS.iter().map(|(kind, name)| {
            let found = open.iter().find(|listener| listener.name == *name).map(shown);
            let off = ListenerState::Off;
            found.unwrap_or(ListenerStatus { name, kind: kind.name(), address: None, state: off, connections: None })
        });
        let is_usual = |name: &str| plan::DOORS.iter().any(|(_, door)| *door == name);
        let of_broker = usual.chain(open.iter().filter(|listener| !is_usual(listener.name)).map(shown));
        let others = self.doors.get().into_iter().flatten().map(|(name, wanted, is)| {
            let state = match (wanted, is) {
                (_, Some(_)) => ListenerState::Open,
                (Some(_), None) => ListenerState::Failed,
                (None, None) => ListenerState::Off,
            };
            ListenerStatus { name, kind: name, address: is.or(*wanted), state, connections: None }
        });
        of_broker.chain(others).collect()
    }

    fn space(&self) -> Option<tidegate_space::SpaceHandle> {
        self.space.get().cloned()
    }

    fn cluster(&self) -> Option<ClusterReport> {
        self.seat.get().map(|seat| (seat.report)())
    }

    fn sinks(&self) -> Vec<SinkReport> {
        self.sinks.get().into_iter().flatten().map(|board| board.report()).collect()
    }

    fn bridges(&self) -> Vec<BridgeReport> {
        self.bridges.get().into_iter().flatten().map(|board| board.report()).collect()
    }

    fn is_gate_off(&self) -> bool {
        self.now().loaded.options.backoff.mode == BackOffMode::Off
    }

    fn demo(&self) -> Option<Arc<dyn Demo>> {
        Some(Arc::clone(&self.demo))
    }
}
