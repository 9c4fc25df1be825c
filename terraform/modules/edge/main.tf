locals {
  # A setting that is null is left out.
  settings = { for name, value in merge(local.defaults, var.settings) : name => value if value != null }

  # Settings may change the drain and the grace, whose default is the program's own. The last 20 s
  # are spare, to close the store.
  stop_s = coalesce(try(var.settings.drain_max_s, null), var.drain_s) + coalesce(try(var.settings.shutdown_grace_s, null), 10) + 20

  defaults = {
    store            = "foundationdb"
    fdb_cluster_file = "/var/lib/millrace/fdb.cluster"
    fdb_tls_cert     = "/etc/millrace/secrets/tls.crt"
    fdb_tls_key      = "/etc/millrace/secrets/tls.key"
    fdb_tls_ca       = "/etc/millrace/secrets/ca.crt"
    fdb_tls_verify   = "Check.Valid=1,S.CN=foundationdb"

    nats               = var.store.nats_urls
    nats_region        = var.name
    nats_user          = "pods"
    nats_password_file = "/etc/millrace/secrets/nats-password"
    nats_tls_ca        = "/etc/millrace/secrets/ca.crt"
    nats_tls_cert      = "/etc/millrace/secrets/tls.crt"
    nats_tls_key       = "/etc/millrace/secrets/tls.key"

    mqtt_listen    = ["off"]
    ws_listen      = ["off"]
    gateway_listen = ["0.0.0.0:${var.ports[0].gateway}"]
    gateway_from   = var.gateway_cidrs
    http_listen    = "0.0.0.0:${var.ports[0].http}"
    admin_listen   = "0.0.0.0:${var.ports[0].http + 10}" # only telemetry reaches it

    operator_token_file = "/etc/millrace/secrets/operator-token"

    allow_anonymous  = false
    server_reference = var.server_reference
    region           = var.name
    endpoint_domain  = var.domain
    ws_origins       = [var.console_url] # the console's own MQTT client connects from another host than its broker's
    drain_max_s      = var.drain_s
    log_format       = "json"
  }
}

module "group" {
  source            = "../group"
  security_group_id = var.security_group_id
  ami_id            = var.ami_id
  instance_type     = var.instance_type
  kms_key_arn       = var.kms_key_arn
  subnet_ids        = var.network.private_subnet_ids
  size              = var.size
  health_url        = "http://127.0.0.1:${var.ports[0].http}/healthz"
  machine = {
    name      = var.name
    role      = "edge"
    boot      = merge(var.boot, { secret_owner = "millrace" })
    artifacts = var.artifacts
    owners    = { "/var/lib/millrace/fdb.cluster" = "millrace" }
    units     = ["systemd-sysctl.service", "millrace.service"]
    files = {
      "/etc/millrace/millrace.toml" = {
        content = templatefile("${path.module}/../../templates/settings.toml.tftpl", { settings = local.settings })
      }
      "/var/lib/millrace/fdb.cluster" = { content = "${var.store.cluster_file}\n" }
      "/etc/systemd/system/millrace.service.d/region.conf" = {
        content = templatefile("${path.module}/../../templates/region.conf.tftpl", {
          stop_s    = local.stop_s
          is_shared = local.settings.store == "foundationdb"
        })
      }
      "/etc/sysctl.d/60-millrace.conf" = { content = file("${path.module}/../../templates/sysctl.conf") }
    }
  }
}
