//! Rotation: a new password for a credential, and which one of the two that it has at most stays valid for a while.

use millrace_access::model::{self, PreviousSecret, Secret as StoredSecret};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{BrokerRef, Caller, Control, CredentialInfo, Error, Once, Result, Versioned};
use crate::limits::ROTATION_OVERLAP_S_MAX;
use crate::secret::Secret;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Time for which the password that `keep` names stays valid beside the new one, in CONNECT and not for SCRAM, in seconds:
    /// at most 30 days from now. With 0 and without `keep`, all former passwords end now.
    #[serde(default)]
    #[schema(maximum = 2_592_000)]
    pub overlap_s: u32,
    /// The password that stays valid beside the new one. Left out, it is the current one, and a rotation with an overlap is
    /// refused (409) while a previous password is valid.
    pub keep: Option<KeptPassword>,
    /// Whether clients may use SCRAM-SHA-256 with the new secret. Left out: as before.
    pub scram: Option<bool>,
}

/// `current`: the password that the new one replaces; it needs an overlap, and a previous password ends now. `previous`: the
/// one before it, after a new password was lost; it stays valid until its end, or for `overlap_s` from now if that is later,
/// the current one ends now, and without a valid previous one the rotation is refused (409).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptPassword {
    Current,
    Previous,
}

impl Rotation {
    fn check(&self) -> Result<()> {
        if self.overlap_s > ROTATION_OVERLAP_S_MAX {
            return Err(Error::field("overlap_s", format!("must be at most {ROTATION_OVERLAP_S_MAX}")));
        }
        if self.keep == Some(KeptPassword::Current) && self.overlap_s == 0 {
            let what = "must be more than 0 with keep \"current\": without an overlap both passwords end now";
            return Err(Error::field("overlap_s", what));
        }
        Ok(())
    }

    /// None: all former passwords end.
    fn kept(&self) -> Option<KeptPassword> {
        self.keep.or((self.overlap_s > 0).then_some(KeptPassword::Current))
    }

    fn replace(&self, record: &mut model::Credential, secret: StoredSecret, now_ms: u64) -> Result<()> {
        let overlap_end_ms = now_ms + u64::from(self.overlap_s) * 1_000;
        let previous = record.previous_secret.take().filter(|previous| previous.until_ms > now_ms);
        let current = record.secret.replace(secret);
        record.previous_secret = match self.kept() {
            None => None,
            Some(KeptPassword::Previous) => {
                let previous = previous.ok_or_else(no_previous)?;
                Some(PreviousSecret { until_ms: previous.until_ms.max(overlap_end_ms), ..previous })
            }
            Some(KeptPassword::Current) => match previous {
                Some(previous) if self.keep.is_none() => return Err(two_passwords(previous.until_ms)),
                _ => current.map(|secret| PreviousSecret { secret, until_ms: overlap_end_ms }),
            },
        };
        Ok(())
    }
}

fn no_previous() -> Error {
    Error::Conflict("the credential has no previous password that is still valid: leave out keep".into())
}

fn two_passwords(until_ms: u64) -> Error {
    Error::Conflict(format!(
        "the password before this one is valid until {until_ms} (unix milliseconds), and devices may still use it. If the \
         current password was lost, rotate with keep \"previous\": the previous one stays valid. If all devices have the \
         current one, rotate with keep \"current\": the previous one ends now. overlap_s 0 without keep ends both now"
    ))
}

impl Control {
    pub(crate) async fn rotate_credential(
        &self,
        caller: &Caller,
        of: (&BrokerRef, &str),
        input: &Rotation,
        once: &Once,
    ) -> Result<(Versioned<CredentialInfo>, Secret)> {
        input.check()?;
        let id = self.new_id()?;
        let check = &self.check_of_generated(once, id, input.scram != Some(false)).await?;
        let (made, id) = self
            .edit_credential(caller, of, (once, id), "credential.rotate", None, |record, now_ms| {
                input.replace(record, check.secret.clone(), now_ms)?;
                let has_scram = input.scram.unwrap_or(record.scram.is_some());
                record.scram = check.scram.clone().filter(|_| has_scram);
                let until_ms = record.previous_secret.as_ref().map(|previous| previous.until_ms);
                Ok(json!({
                    "overlap_s": input.overlap_s, "kept": input.kept(), "previous_secret_until_ms": until_ms,
                }))
            })
            .await?;
        Ok((made, self.generated(once, id)?))
    }
}
