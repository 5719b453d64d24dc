//! Who may use the smart space, as the process knows it: users, tokens and certificates by the broker's own threads, classes and
//! rights by the configuration that holds now.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_admin::{ProcessControl, UserDirectory};
use tidegate_broker::NotAsked;
use tidegate_broker::authenticate::{Credentials, LoginGrant};
use tidegate_core::Whom;
use tidegate_core::classes::{Asker, AskerClass, ClassRole};
use tidegate_graph::GraphRights;
use tidegate_space::{
    AccessMode, AccessPolicy, Checked, KpClass, KpIdentity, KpRole, KpStanding, LimitOwner, RequestLimit, TokenHolder,
    TokenVerdict,
};

use super::RunningProcess;

impl AccessPolicy for RunningProcess {
    fn rule(&self) -> AccessMode {
        let now = self.now();
        match &now.directory {
            None => AccessMode::Open,
            Some(_) if now.loaded.options.security.allow_anonymous => AccessMode::ReadersOpen,
            Some(_) => AccessMode::Users,
        }
    }

    fn generation(&self) -> u64 {
        self.now().generation
    }

    fn rights(&self, user: Option<&str>) -> Option<Arc<GraphRights>> {
        let graphs = self.now().graphs.clone();
        Some(graphs?.rights(user))
    }

    fn is_welcome(&self, origin: &str) -> bool {
        let now = self.now();
        now.loaded.options.space.origins.0.iter().any(|listed| listed == "*" || listed == origin)
    }

    fn class_of(&self, kp: &KpIdentity<'_>, claim: Option<&str>) -> KpClass {
        let now = self.now();
        let asker =
            Asker { user: kp.user, address: kp.address, name: kp.name, believes_names: now.directory.is_none() };
        let AskerClass { class, is_claim_ignored } = now.classes.of_asker(&asker, claim);
        let class = now.classes.get(class);
        let role = match class.map(|class| class.role).unwrap_or_default() {
            ClassRole::Service => KpRole::Service,
            ClassRole::Customer => KpRole::Customer,
        };
        let weight = class.map_or(1, |class| class.weight);
        let name = class.map_or("normal", |class| &class.name).into();
        KpClass { name, standing: KpStanding { role, weight }, is_claim_ignored }
    }

    fn banned_for(&self, kp: &KpIdentity<'_>) -> Option<Duration> {
        self.handle.banned_for(kp.name.unwrap_or_default(), kp.user, kp.address)
    }

    fn limit_of(&self, kp: &KpIdentity<'_>) -> Option<RequestLimit> {
        let (whom, rate) = self.handle.limit_for(kp.name, kp.user)?;
        let owner = match whom {
            Whom::Client(_) => LimitOwner::Kp,
            Whom::User(_) => LimitOwner::User,
        };
        Some(RequestLimit { interval: rate.interval(), burst: rate.burst(), owner })
    }

    fn check(&self, user: String, password: Vec<u8>, from: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked {
        let Some(directory) = self.directory() else { return Checked::Busy };
        let credentials = Credentials { user_name: Some(user), password: Some(password), ..Credentials::default() };
        self.authenticate(directory, credentials, from, verdict)
    }

    fn check_token(&self, token: Vec<u8>, from: IpAddr, verdict: TokenVerdict) -> Checked {
        let Some(directory) = self.directory() else { return Checked::Busy };
        let credentials = Credentials { password: Some(token), ..Credentials::default() };
        let told = move |who: Result<LoginGrant, _>| {
            let grant = who.ok().filter(|grant| !grant.is_lasting());
            let holder = |grant: LoginGrant| Some(TokenHolder { user: grant.user?, valid_for: grant.valid_for });
            verdict(grant.and_then(holder));
        };
        asked(self.handle.authenticate(directory.authenticator, credentials, from, told))
    }

    fn is_taken_back(&self, user: &str, shown_s: u64) -> bool {
        self.now().revoked.until(user).is_some_and(|until| shown_s <= until)
    }

    fn check_certificate(&self, user: String, from: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked {
        let Some(directory) = self.directory() else {
            // Without users every certificate that was verified is as good as another.
            verdict(true);
            return Checked::Asked;
        };
        let credentials = Credentials { certificate_name: Some(user), ..Credentials::default() };
        self.authenticate(directory, credentials, from, verdict)
    }
}

impl RunningProcess {
    fn authenticate(
        &self,
        directory: UserDirectory,
        credentials: Credentials,
        from: IpAddr,
        verdict: Box<dyn FnOnce(bool) + Send>,
    ) -> Checked {
        let told = move |who: Result<LoginGrant, _>| {
            verdict(who.is_ok_and(|grant| grant.is_lasting() && grant.user.is_some()));
        };
        asked(self.handle.authenticate(directory.authenticator, credentials, from, told))
    }
}

fn asked(asked: Result<(), NotAsked>) -> Checked {
    match asked {
        Ok(()) => Checked::Asked,
        Err(NotAsked::Busy) => Checked::Busy,
        Err(NotAsked::Wait(pause)) => Checked::Wait(pause),
    }
}
