locals {
  name = "${var.name}-control"
  http = 8080

  settings = { for name, value in merge(local.defaults, var.settings) : name => value if value != null }

  # Time that systemd gives the server to stop: drain_max_s, shutdown_grace_s, and 20 s to close the
  # store. 20 and 10 are the program's defaults of the two settings.
  stop_s = coalesce(try(var.settings.drain_max_s, null), 20) + coalesce(try(var.settings.shutdown_grace_s, null), 10) + 20

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

    # The server does not start without an MQTT listener. No client runs on this machine, so a
    # loopback listener accepts nobody.
    mqtt_listen     = ["127.0.0.1:1883"]
    ws_listen       = ["off"]
    allow_anonymous = false
    http_listen     = "0.0.0.0:${local.http}"
    admin_listen    = "0.0.0.0:${local.http + 10}" # only telemetry reaches it
    http_proxies    = [var.network.cidr]
    public_url      = var.public_url
    region          = var.name
    endpoint_domain = var.domain # the API and the page's Content-Security-Policy name the gateway, not this machine
    log_format      = "json"

    operator_token_file = "/etc/millrace/secrets/operator-token"
  }
}

# -- load balancer with the console's certificate

resource "aws_lb" "this" {
  name                       = substr(local.name, 0, 32)
  load_balancer_type         = "application"
  internal                   = false
  subnets                    = var.network.public_subnet_ids
  security_groups            = [var.balancer_security_group_id]
  drop_invalid_header_fields = true
  enable_deletion_protection = var.is_protected
  tags                       = { Name = local.name }

  access_logs {
    bucket  = var.logs_bucket
    prefix  = "control"
    enabled = true
  }
}

resource "aws_lb_target_group" "this" {
  name                 = substr(local.name, 0, 32)
  vpc_id               = var.network.vpc_id
  protocol             = "HTTP"
  port                 = local.http
  target_type          = "instance"
  deregistration_delay = 30

  health_check {
    path              = "/healthz"
    interval          = 10
    healthy_threshold = 2
  }
  tags = { Name = local.name }
}

resource "aws_lb_listener" "https" {
  load_balancer_arn = aws_lb.this.arn
  protocol          = "HTTPS"
  port              = 443
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn
  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }
  tags = { Name = local.name }
}

# /healthz answers without a password, so the load balancer hides it from the internet. Its own
# health checks do not pass through the listener.
resource "aws_lb_listener_rule" "inside" {
  listener_arn = aws_lb_listener.https.arn
  priority     = 1
  condition {
    path_pattern { values = ["/healthz*"] }
  }
  action {
    type = "fixed-response"
    fixed_response {
      content_type = "text/plain"
      status_code  = "404"
      message_body = "not found"
    }
  }
  tags = { Name = local.name }
}

# -- machines

module "group" {
  source            = "../group"
  security_group_id = var.security_group_id
  ami_id            = var.ami_id
  instance_type     = var.instance_type
  kms_key_arn       = var.kms_key_arn
  subnet_ids        = var.network.private_subnet_ids
  size              = var.size
  target_group_arns = [aws_lb_target_group.this.arn]
  machine = {
    name      = var.name
    role      = "control"
    boot      = merge(var.boot, { secret_owner = "millrace" })
    artifacts = var.artifacts
    owners    = { "/var/lib/millrace/fdb.cluster" = "millrace" }
    units     = ["millrace.service"]
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
    }
  }
}
