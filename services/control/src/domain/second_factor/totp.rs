//! Codes of an authenticator app (TOTP, RFC 6238): the time steps that are taken, and the limit of wrong codes.

use super::super::{Control, Error, Result};
use super::{FactorCheck, Factors};
use crate::limits::{WRONG_CODES_MAX, WRONG_CODES_MS};
use crate::secret::Secret;
use totp_rs::{Builder, Totp};
use uuid::Uuid;

impl Control {
    pub(super) fn take_step(
        &self,
        user: Uuid,
        record: &mut Factors,
        code: &Secret,
        now_ms: u64,
    ) -> Result<FactorCheck> {
        let until_ms = record.wrong_since_ms + WRONG_CODES_MS;
        if until_ms <= now_ms {
            (record.wrong, record.wrong_since_ms) = (0, now_ms);
        } else if record.wrong >= WRONG_CODES_MAX {
            return Ok(FactorCheck::TooMany { until_ms });
        }
        Ok(match self.step_of(user, record, code, now_ms)?.filter(|step| *step > record.last_step) {
            Some(step) => {
                record.last_step = step;
                FactorCheck::Right
            }
            None => {
                record.wrong += 1;
                FactorCheck::Wrong
            }
        })
    }

    /// The time step that a code of the device is of: the present one, or one beside it.
    pub(super) fn step_of(
        &self,
        user: Uuid,
        record: &Factors,
        code: &Secret,
        now_ms: u64,
    ) -> Result<Option<u64>> {
        let device = record.device.as_ref().ok_or(Error::NotFound("authenticator app"))?;
        let opened = device.open(self.key_with(device.key)?, user.as_bytes());
        let device = opened.ok_or(Error::Internal("a second factor cannot be opened"))?;
        Ok(totp(device).check(code.expose(), now_ms / 1_000))
    }
}

pub(super) fn totp(device: Vec<u8>) -> Totp {
    Builder::new().with_secret(device).build_noncompliant()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_rfc_6238() {
        // Appendix B, whose codes have eight digits: the last six of them.
        let totp = totp(b"12345678901234567890".to_vec());
        for (time, code) in [(59, "287082"), (1_111_111_109, "081804"), (20_000_000_000, "353130")] {
            assert_eq!(totp.check(code, time), Some(time / 30));
            assert_eq!(totp.check(code, time + 30), Some(time / 30));
            assert_eq!(totp.check(code, time + 60 + 30), None);
        }
    }
}
