//! Export of an organisation: everything that it owns, as lines of JSON.
//!
//! The export is read page by page, while the client takes it, so it needs the memory of one page. Each page is a request of
//! its own to the control plane: it waits for a turn in the organisation's budget, and the caller must still be signed in and
//! allowed to read it.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use millrace_access::model::{Ban, ClientCa, Group, JwtIssuer, Webhook};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{AuthenticatedCaller, Path};
use super::parts::without_secrets;
use super::problem::{ApiResult, Problem};
use super::shares::Share;
use super::{Api, InOrganisation};
use crate::domain::{
    AuditFilter, BrokerRef, Caller, CapOf, Error, Page, PageRequest, Permission, Span, UsageStep,
};
use crate::limits::{EXPORT_MAX, PAGE_ROWS_MAX, USAGE_DAYS_MAX};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(export_organisation))
}

/// Everything that the organisation owns, as one JSON object a line: its members, invitations, API tokens, spend caps, usage by
/// days, brokers with all their settings, credentials and webhooks, and the audit log. Secrets are left out, and so are
/// messages and sessions. Each line has a `kind`, its `data`, and for what belongs to a broker its name as `broker`. The
/// last line has the kind `end`; without it the export is incomplete, and a line of the kind `error` has the reason. An
/// export takes an hour at most.
#[utoipa::path(get, path = "/organisations/{organisation}/export", tag = "organisations", params(InOrganisation),
    responses((status = 200, description = "Lines of JSON", content_type = "application/x-ndjson", body = String)))]
async fn export_organisation(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(InOrganisation { organisation }): Path<InOrganisation>,
) -> ApiResult<Response> {
    for needed in
        [Permission::OrganisationRead, Permission::BrokersRead, Permission::AccessRead, Permission::AuditRead]
    {
        api.control().may(&caller, organisation, needed).await?;
    }
    let share = api.streams().take(organisation, caller.person())?;
    let (left, until) = (ExportPart::first().into(), Instant::now() + EXPORT_MAX);
    let export = Export { api, caller, organisation, left, until, _share: share };
    let lines = stream::unfold(export, async |mut export| {
        let lines = export.next().await?;
        Some((Ok::<_, Infallible>(lines), export))
    });
    let name = format!("attachment; filename=\"{organisation}.jsonl\"");
    let headers =
        [(header::CONTENT_TYPE, "application/x-ndjson".to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(lines)).into_response())
}

struct Export {
    api: Api,
    caller: Caller,
    organisation: Uuid,
    left: VecDeque<ExportPart>,
    until: Instant,
    _share: Share,
}

struct ExportPart {
    kind: ExportKind,
    /// Name of the broker that it belongs to.
    broker: Option<String>,
    /// Where its next page begins.
    after: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportKind {
    Organisation,
    Member,
    Invitation,
    Token,
    SpendCap,
    Usage,
    Broker,
    Access,
    Group,
    JwtIssuer,
    ClientCa,
    Webhook,
    Ban,
    ClaimToken,
    Credential,
    AuditEntry,
    End,
}

impl ExportKind {
    const OF_BROKER: [Self; 9] = [
        Self::Access,
        Self::SpendCap,
        Self::Group,
        Self::JwtIssuer,
        Self::ClientCa,
        Self::Webhook,
        Self::Ban,
        Self::ClaimToken,
        Self::Credential,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Organisation => "organisation",
            Self::Member => "member",
            Self::Invitation => "invitation",
            Self::Token => "token",
            Self::SpendCap => "spend_cap",
            Self::Usage => "usage",
            Self::Broker => "broker",
            Self::Access => "access",
            Self::Group => "group",
            Self::JwtIssuer => "jwt_issuer",
            Self::ClientCa => "client_ca",
            Self::Webhook => "webhook",
            Self::Ban => "ban",
            Self::ClaimToken => "claim_token",
            Self::Credential => "credential",
            Self::AuditEntry => "audit_entry",
            Self::End => "end",
        }
    }
}

impl ExportPart {
    fn first() -> Vec<Self> {
        let kinds = [
            ExportKind::Organisation,
            ExportKind::Member,
            ExportKind::Invitation,
            ExportKind::Token,
            ExportKind::SpendCap,
            ExportKind::Usage,
            ExportKind::Broker,
            ExportKind::AuditEntry,
            ExportKind::End,
        ];
        kinds.map(|kind| Self { kind, broker: None, after: None }).into()
    }
}

impl Export {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let part = self.left.pop_front()?;
            match self.read(&part).await {
                Ok(page) if page.items.is_empty() => self.go_on(part, &page),
                Ok(page) => {
                    let lines = lines(part.kind.name(), part.broker.as_deref(), &page.items);
                    self.go_on(part, &page);
                    return Some(lines);
                }
                // The broker was deleted after its page was read.
                Err(problem) if part.broker.is_some() && problem.is(StatusCode::NOT_FOUND) => {}
                Err(problem) => {
                    self.left.clear();
                    return Some(lines("error", None, &[json!(problem)]));
                }
            }
        }
    }

    fn go_on(&mut self, part: ExportPart, page: &Page<Value>) {
        let kind = part.kind;
        if let Some(next) = &page.next {
            self.left.push_front(ExportPart { after: Some(next.clone()), ..part });
        }
        if kind == ExportKind::Broker {
            let names = page.items.iter().filter_map(|broker| broker["name"].as_str());
            let parts = names.flat_map(|name| {
                ExportKind::OF_BROKER.map(|kind| ExportPart {
                    kind,
                    broker: Some(name.to_owned()),
                    after: None,
                })
            });
            for part in parts.collect::<Vec<_>>().into_iter().rev() {
                self.left.push_front(part);
            }
        }
    }

    async fn read(&self, part: &ExportPart) -> ApiResult<Page<Value>> {
        let _turn = self.api.budget().turn_of_export(self.organisation, self.caller.account()).await?;
        self.api.control().is_still_there(&self.caller).await?;
        if Instant::now() > self.until {
            let detail = "an export takes an hour at most: read it faster";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
        }
        let (control, caller, organisation) = (self.api.control(), &self.caller, self.organisation);
        let page = &PageRequest { after: part.after.clone(), limit: PAGE_ROWS_MAX };
        let at = &BrokerRef { organisation, name: part.broker.clone().unwrap_or_default() };
        match part.kind {
            ExportKind::Organisation => one(control.organisation(caller, organisation).await?.value),
            ExportKind::Member => values(control.members(caller, organisation, page).await?),
            ExportKind::Invitation => values(control.invitations(caller, organisation, page).await?),
            ExportKind::Token => values(control.tokens(caller, organisation, page).await?),
            ExportKind::SpendCap => {
                let of = CapOf { organisation, broker: part.broker.clone() };
                match control.spend_cap(caller, &of).await {
                    Ok(cap) => one(cap.value),
                    Err(Error::NotFound("spend cap")) => Ok(Page { items: Vec::new(), next: None }),
                    Err(error) => Err(error.into()),
                }
            }
            ExportKind::Usage => {
                let from_ms = control.now_ms().saturating_sub((USAGE_DAYS_MAX - 1) * 86_400_000);
                let span = Span { from_ms: Some(from_ms), to_ms: None, step: UsageStep::Day };
                one(control.organisation_usage(caller, organisation, span).await?)
            }
            ExportKind::Broker => values(control.brokers(caller, organisation, page).await?),
            ExportKind::Access => one(control.access(caller, at).await?.value.without_secrets()),
            ExportKind::Group => without_secrets::<Group>(control.parts(caller, at, page).await?),
            ExportKind::JwtIssuer => without_secrets::<JwtIssuer>(control.parts(caller, at, page).await?),
            ExportKind::ClientCa => without_secrets::<ClientCa>(control.parts(caller, at, page).await?),
            ExportKind::Webhook => without_secrets::<Webhook>(control.parts(caller, at, page).await?),
            ExportKind::Ban => without_secrets::<Ban>(control.parts(caller, at, page).await?),
            ExportKind::ClaimToken => values(control.claim_tokens(caller, at, page).await?),
            ExportKind::Credential => values(control.credentials(caller, at, None, page).await?),
            ExportKind::AuditEntry => {
                values(control.audit_log(caller, organisation, &AuditFilter::default(), page).await?)
            }
            ExportKind::End => one(json!({})),
        }
    }
}

pub(super) fn values(page: Page<impl Serialize>) -> ApiResult<Page<Value>> {
    let items = page.items.into_iter().map(serde_json::to_value).collect::<Result<_, _>>();
    let items = items.map_err(|error| {
        tracing::error!(%error, "a row cannot be written as JSON, so its request fails: report it with this line");
        Error::Internal("a row cannot be written as JSON")
    })?;
    Ok(Page { items, next: page.next })
}

fn one(value: impl Serialize) -> ApiResult<Page<Value>> {
    values(Page { items: vec![value], next: None })
}

fn lines(kind: &str, broker: Option<&str>, items: &[Value]) -> Bytes {
    let line = |data: &Value| match broker {
        Some(broker) => json!({ "kind": kind, "broker": broker, "data": data }).to_string() + "\n",
        None => json!({ "kind": kind, "data": data }).to_string() + "\n",
    };
    items.iter().map(line).collect::<String>().into()
}
