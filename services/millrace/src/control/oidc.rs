//! Settings of the OpenID Connect provider with which people may sign in.

use std::path::PathBuf;

use clap::Args;
use millrace_control::{OidcSettings, PATH, oidc_issuer};

#[derive(Clone, Debug, Args)]
pub(super) struct OidcArgs {
    /// OpenID Connect: URL of a provider with which people may also sign in, exactly as the
    /// provider writes it in "iss". Allow it to redirect to public_url followed by
    /// /api/v1/sign-in/oidc/callback.
    #[arg(long, value_name = "URL", value_parser = oidc_issuer)]
    oidc_issuer: Option<String>,

    /// OpenID Connect: client id of this server at the provider.
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,

    /// OpenID Connect: file with the secret of that client [default: none, a public client].
    #[arg(long, value_name = "FILE")]
    oidc_client_secret_file: Option<PathBuf>,

    /// OpenID Connect: name of the provider on the sign-in page.
    #[arg(long, value_name = "NAME", default_value = "your provider", value_parser = name)]
    oidc_name: String,
}

impl OidcArgs {
    pub(super) fn settings(&self, public_url: Option<&str>) -> Result<Option<OidcSettings>, String> {
        let (issuer, client_id) = match (&self.oidc_issuer, &self.oidc_client_id) {
            (Some(issuer), Some(client_id)) => (issuer.clone(), client_id.clone()),
            (None, None) if self.oidc_client_secret_file.is_none() => return Ok(None),
            _ => {
                return Err(
                    "oidc_issuer and oidc_client_id go together: set both, or neither and no secret".into()
                );
            }
        };
        let public_url = public_url
            .ok_or("oidc_issuer is set and public_url is not: the provider sends browsers back there")?;
        let client_secret = self.oidc_client_secret_file.as_ref().map(|file| {
            let text = std::fs::read_to_string(file).map_err(|error| {
                format!("oidc_client_secret_file {} cannot be read: {error}", file.display())
            })?;
            Ok::<_, String>(text.trim().into())
        });
        Ok(Some(OidcSettings {
            name: self.oidc_name.clone(),
            issuer,
            client_id,
            client_secret: client_secret.transpose()?,
            redirect_url: format!("{public_url}{PATH}/sign-in/oidc/callback"),
        }))
    }
}

fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err("a name is allowed that people can read, such as \"Plant login\"".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(issuer: Option<&str>, client_id: Option<&str>) -> OidcArgs {
        OidcArgs {
            oidc_issuer: issuer.map(Into::into),
            oidc_client_id: client_id.map(Into::into),
            oidc_client_secret_file: None,
            oidc_name: "Plant".into(),
        }
    }

    #[test]
    fn a_provider_needs_who_we_are_and_where_we_are() {
        let here = Some("https://console.example.org");
        let (issuer, id) = (Some("https://login.example.org"), Some("millrace"));
        let settings = args(issuer, id).settings(here).unwrap().unwrap();
        assert_eq!(settings.redirect_url, "https://console.example.org/api/v1/sign-in/oidc/callback");
        assert!(args(None, None).settings(here).unwrap().is_none());
        for (args, here) in [(args(issuer, None), here), (args(None, id), here), (args(issuer, id), None)] {
            assert!(args.settings(here).is_err());
        }
        let mut with_file = args(issuer, id);
        with_file.oidc_client_secret_file = Some("/nowhere/secret".into());
        assert!(with_file.settings(here).unwrap_err().contains("/nowhere/secret"));
    }
}
