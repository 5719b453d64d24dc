//! The same of AMQP: SASL, and what the container is called.

use tidegate_face_amqp::{self as face_amqp, Offers};
use tidegate_wire_mqtt::Version;

use super::shown::container_credentials;
use super::{Checking, ConnectTerms, Handshake, HandshakeStage, HandshakeStep};
use crate::authenticate::LoginGrant;

impl Handshake {
    pub(super) fn parse_container(
        &mut self,
        terms: &ConnectTerms<'_>,
        make_id: impl FnOnce() -> String,
    ) -> HandshakeStep {
        let Ok(certificate_name) = self.link.certificate_name() else {
            self.trouble = Some("client certificate without a usable name".into());
            return self.farewell(Vec::new());
        };
        let offers = Offers { anonymous: terms.admits_nobody, external: certificate_name.is_some() };
        loop {
            let HandshakeStage::Container(visit) = &mut self.stage else { return HandshakeStep::Wait };
            match visit.greeting.advance(&self.input, offers) {
                face_amqp::First::Incomplete => return HandshakeStep::Wait,
                face_amqp::First::Refuse { answer, why } => {
                    self.trouble = Some(why);
                    return self.farewell(answer);
                }
                face_amqp::First::Answer { consumed, answer } => {
                    if !self.link.send([&answer, &[]]).is_ok_and(|sent| sent.taken == answer.len()) {
                        return HandshakeStep::Close;
                    }
                    self.input.drain(..consumed);
                }
                face_amqp::First::Login { consumed, shown } => {
                    self.input.drain(..consumed);
                    let amqp = Some(std::mem::take(visit));
                    self.name = Some((String::new(), shown.user_name.clone()));
                    let credentials = container_credentials(&shown, "", certificate_name, self.listener());
                    let checking = Checking::new(0, Version::V311, String::new());
                    self.stage = HandshakeStage::Checking(Checking { amqp, ..checking });
                    return HandshakeStep::Check(credentials);
                }
                face_amqp::First::Hello { consumed, hello } => {
                    let mut visit = std::mem::take(visit);
                    let name = hello.container_id.as_str();
                    self.name = Some((name.to_owned(), hello.shown.user_name.clone()));
                    let credentials = container_credentials(&hello.shown, name, certificate_name, self.listener());
                    let client_id = if name.is_empty() { make_id() } else { name.to_owned() };
                    visit.hello = Some(hello);
                    let checking = Checking::new(consumed, Version::V311, client_id);
                    self.stage = HandshakeStage::Checking(Checking { amqp: Some(visit), ..checking });
                    return HandshakeStep::Check(credentials);
                }
            }
        }
    }

    /// Whether it speaks AMQP.
    pub(crate) fn is_amqp(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.is_amqp())
    }

    /// Whether SASL waits to hear who it is, and `open` is still to come.
    pub(crate) fn is_login(&self) -> bool {
        match &self.stage {
            HandshakeStage::Checking(checking) => checking.amqp.as_ref().is_some_and(|visit| visit.greeting.is_login()),
            _ => false,
        }
    }

    /// Who it is, if that is known already by the rules of this number.
    pub(crate) fn granted(&self, generation: u64) -> Option<LoginGrant> {
        let HandshakeStage::Checking(Checking { amqp: Some(visit), .. }) = &self.stage else { return None };
        let (grant, known_by) = visit.granted.as_ref()?;
        (*known_by == generation).then(|| grant.clone())
    }

    /// It is this user: SASL is told so, and AMQP begins.
    pub(crate) fn admit(&mut self, grant: LoginGrant, generation: u64) -> HandshakeStep {
        let HandshakeStage::Checking(Checking { amqp, .. }) = &mut self.stage else { return HandshakeStep::Close };
        let Some(mut visit) = amqp.take() else { return HandshakeStep::Close };
        visit.granted = Some((grant, generation));
        let answer = visit.greeting.admit();
        self.stage = HandshakeStage::Container(visit);
        if !self.link.send([&answer, &[]]).is_ok_and(|sent| sent.taken == answer.len()) {
            return HandshakeStep::Close;
        }
        HandshakeStep::Again
    }
}
