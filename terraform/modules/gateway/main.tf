locals {
  name   = "${var.name}-gateway"
  mqtts  = { name = "mqtts", outside = 8883, inside = 8883 }
  wss    = { name = "wss", outside = 443, inside = 8443 }
  ports  = { for port in [local.mqtts, local.wss] : port.name => port }
  source = "${path.module}/../../../gateway"
}

# -- load balancer: TCP only, so that the devices' TLS ends in Envoy

resource "aws_lb" "this" {
  name                             = substr(local.name, 0, 32)
  load_balancer_type               = "network"
  internal                         = false
  subnets                          = var.network.public_subnet_ids
  security_groups                  = [var.balancer_security_group_id]
  enable_cross_zone_load_balancing = true
  enable_deletion_protection       = var.is_protected
  tags                             = { Name = local.name }

  access_logs {
    bucket  = var.logs_bucket
    prefix  = "gateway"
    enabled = true
  }
}

resource "aws_lb_target_group" "this" {
  for_each    = local.ports
  name        = substr("${local.name}-${each.key}", 0, 32)
  vpc_id      = var.network.vpc_id
  protocol    = "TCP"
  port        = each.value.inside
  target_type = "instance"

  # Envoy passes the device's own address on to the edge.
  preserve_client_ip = "true"
  # A gateway that is taken out keeps its devices while it drains.
  deregistration_delay   = var.drain_s + 30
  connection_termination = false

  # A gateway that drains says that it is not ready. By default the load balancer would cut all of its devices at once then, and they
  # would come back together. Devices of a machine that is gone wait as long for the cut, or until their keep-alive.
  target_health_state {
    enable_unhealthy_connection_termination = false
    unhealthy_draining_interval             = var.drain_s + 30
  }

  health_check {
    protocol            = "HTTP"
    path                = "/ready"
    port                = "9902"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
  tags = { Name = "${local.name}-${each.key}" }
}

resource "aws_lb_listener" "this" {
  for_each          = local.ports
  load_balancer_arn = aws_lb.this.arn
  protocol          = "TCP"
  port              = each.value.outside
  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this[each.key].arn
  }
  tags = { Name = "${local.name}-${each.key}" }
}

# -- machines

locals {

  environment = {
    GATEWAY_DIR             = "/run/millrace-gateway"
    GATEWAY_CERTIFICATES    = "/etc/millrace/secrets"
    GATEWAY_LISTEN          = "0.0.0.0"
    GATEWAY_MQTTS_PORT      = local.mqtts.inside
    GATEWAY_WSS_PORT        = local.wss.inside
    GATEWAY_STATUS_LISTEN   = "0.0.0.0"
    GATEWAY_CONNECTIONS_MAX = var.connections_max
    GATEWAY_HEAP_BYTES_MAX  = var.heap_gib * 1073741824
    GATEWAY_NOTICE_S        = 25
    GATEWAY_DRAIN_S         = var.drain_s - 25 > 0 ? var.drain_s - 25 : var.drain_s
    GATEWAY_ENVOY           = "/usr/local/bin/envoy"
    PODS_TAGS               = "millrace-region=${var.name} millrace-role=edge"
    PODS_PORTS              = join(" ", var.ports)
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
  target_group_arns = [for name in keys(local.ports) : aws_lb_target_group.this[name].arn]
  machine = {
    name      = var.name
    role      = "gateway"
    boot      = merge(var.boot, { secret_owner = "envoy" })
    artifacts = var.artifacts
    users     = ["envoy"]
    # This action knows no resource: any machine of the account can be listed, none can be changed.
    statements = [{ sid = "FindPods", actions = ["ec2:DescribeInstances"], resources = ["*"] }]
    units = [
      "systemd-sysctl.service", "millrace-gateway-limits.service", "millrace-gateway-pods.service", "millrace-gateway.service",
      "millrace-gateway-pods.timer", "millrace-gateway-certificate.timer", "millrace-gateway-log.timer",
    ]
    files = merge(
      {
        "/etc/millrace/gateway.env"               = { content = join("", [for name, value in local.environment : "${name}=${jsonencode(tostring(value))}\n"]) }
        "/usr/local/lib/millrace/gateway.sh"      = { content = file("${local.source}/gateway.sh"), mode = "0755" }
        "/usr/local/lib/millrace/limits.nft"      = { content = file("${local.source}/limits.nft") }
        "/usr/local/lib/millrace/envoy.yaml.tmpl" = { content = file("${local.source}/envoy.yaml.tmpl") }
        "/usr/local/lib/millrace/gateway-pods.sh" = { content = file("${path.module}/files/gateway-pods.sh"), mode = "0755" }
        "/usr/local/lib/millrace/gateway-log.sh"  = { content = file("${path.module}/files/gateway-log.sh"), mode = "0755" }
        "/etc/sysctl.d/60-millrace.conf"          = { content = file("${path.module}/../../templates/sysctl.conf") }
      },
      {
        for name in fileset("${path.module}/files", "*.{service,timer}") :
        "/etc/systemd/system/${name}" => { content = file("${path.module}/files/${name}") }
      },
    )
  }
}
