//! Gives rustls the server's certificate, and records which server name the client asked for.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

thread_local! {
    /// The server name in the ClientHello that this thread processes, because the unbuffered API of
    /// rustls passes it only to the certificate resolver.
    static ASKED_NAME: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub(super) struct CertificateResolver(pub(super) Arc<CertifiedKey>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        ASKED_NAME.set(hello.server_name().map(Into::into));
        Some(self.0.clone())
    }
}

pub(super) fn take_asked_name() -> Option<Box<str>> {
    ASKED_NAME.take()
}
