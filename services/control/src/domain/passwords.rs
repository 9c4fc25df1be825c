//! Passwords of people. Hashing runs on blocking threads, because it takes tens of milliseconds.

use millrace_access::model::ScramVerifier;
use millrace_access::scram;
use millrace_access::secrets::chosen;
use tokio::task::spawn_blocking;

use super::check::weakness;
use super::{Control, Error, Result};
use crate::secret::{self, Secret};

impl Control {
    pub(super) async fn refuse_weak(&self, field: &str, password: &Secret, known: &[&str]) -> Result<()> {
        let (password, known) = (password.clone(), known.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
        let weak = self.aside(move || {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            weakness(password.expose(), &known)
        });
        weak.await?.map_or(Ok(()), |why| Err(Error::field(field, why)))
    }

    /// Returns a PHC string of Argon2id with a random salt.
    pub(super) async fn hash_password(&self, password: &Secret) -> Result<String> {
        let (password, salt) = (password.clone(), secret::random()?);
        let hash = self.aside(move || chosen::hash(password.expose().as_bytes(), &salt));
        hash.await?.map_err(|_| BROKEN)
    }

    /// Without a stored hash it takes as long and returns false, so that the time does not reveal whether the account
    /// exists.
    pub(super) async fn verify_password(&self, phc: Option<String>, password: &Secret) -> Result<bool> {
        let password = password.clone();
        self.aside(move || {
            let hash = phc.as_deref().unwrap_or(chosen::dummy());
            chosen::verify(hash, password.expose().as_bytes()) && phc.is_some()
        })
        .await
    }

    pub(super) async fn scram_verifier(&self, password: &Secret) -> Result<ScramVerifier> {
        let (password, salt) = (password.clone(), secret::random()?);
        self.aside(move || scram::verifier(password.expose(), salt)).await
    }

    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let _permit = self.0.passwords.acquire().await.map_err(|_| BROKEN)?;
        spawn_blocking(work).await.map_err(|_| BROKEN)
    }
}

const BROKEN: Error = Error::Internal("the password could not be hashed");
