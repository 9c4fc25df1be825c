# Connections between groups of machines: each line becomes a rule at both ends, and nothing else is open.
locals {
  machines = toset(["gateway", "edge", "control", "foundationdb", "nats", "telemetry"])
  groups   = setunion(local.machines, ["gateway-balancer", "control-balancer"])
  database = { port = 4500, to_port = var.foundationdb_last_port }

  between = concat(
    [
      { from = "gateway-balancer", to = "gateway", port = 8883, to_port = 8883 },
      { from = "gateway-balancer", to = "gateway", port = 8443, to_port = 8443 },
      { from = "gateway-balancer", to = "gateway", port = 9902, to_port = 9902 },
      { from = "control-balancer", to = "control", port = 8080, to_port = 8080 },
      merge(local.database, { from = "edge", to = "foundationdb" }),
      merge(local.database, { from = "control", to = "foundationdb" }),
      merge(local.database, { from = "foundationdb", to = "foundationdb" }),
      { from = "edge", to = "nats", port = 4222, to_port = 4222 },
      { from = "control", to = "nats", port = 4222, to_port = 4222 },
      { from = "nats", to = "nats", port = 6222, to_port = 6222 },
      { from = "telemetry", to = "control", port = 8090, to_port = 8090 },
      { from = "telemetry", to = "gateway", port = 9902, to_port = 9902 },
      { from = "telemetry", to = "nats", port = 8222, to_port = 8222 },
      { from = "telemetry", to = "foundationdb", port = 7777, to_port = 7777 },
    ],
    [for machine in var.has_collector ? ["edge", "control"] : [] : { from = machine, to = "telemetry", port = 4318, to_port = 4318 }],
    # A machine reaches its own ports without a rule.
    [for machine in setsubtract(local.machines, ["telemetry"]) : { from = "telemetry", to = machine, port = 9100, to_port = 9100 }],
    flatten([for port in var.edge_ports : [
      { from = "gateway", to = "edge", port = port.gateway, to_port = port.gateway },
      { from = "gateway", to = "edge", port = port.http, to_port = port.http },
      { from = "telemetry", to = "edge", port = port.http + 10, to_port = port.http + 10 },
    ]]),
  )

  into = merge(
    { for cidr in var.devices : "devices ${cidr} mqtts" => { to = "gateway-balancer", port = 8883, cidr = cidr } },
    { for cidr in var.devices : "devices ${cidr} wss" => { to = "gateway-balancer", port = 443, cidr = cidr } },
    { for cidr in var.people : "people ${cidr}" => { to = "control-balancer", port = 443, cidr = cidr } },
  )

  # Webhooks, key sets, providers of identities. The programs themselves refuse private addresses, unless outgoing_allow has them.
  out      = var.has_way_out ? toset(["edge", "control"]) : toset([])
  out_http = setintersection(local.out, var.outgoing_http)
  out_allow = merge([for role, networks in var.outgoing_allow : {
    for network in networks : "${role} ${network}" => { role = role, network = network }
  }]...)

  alert_ports = var.alertmanager == null ? toset([]) : toset([for target in var.alertmanager.targets : regex("[0-9]+$", target)])

  # Port 443 of the network is open already, for AWS's services, and AWS refuses the same rule twice.
  trace_ports = var.traces_port == null || var.traces_port == 443 ? toset([]) : toset([tostring(var.traces_port)])

  rules = { for rule in local.between : "${rule.from} to ${rule.to} ${rule.port}" => rule }
}

resource "aws_security_group" "this" {
  for_each    = local.groups
  name        = "${var.name}-${each.key}"
  description = "${each.key} of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = { Name = "${var.name}-${each.key}" }
}

resource "aws_vpc_security_group_ingress_rule" "between" {
  for_each                     = local.rules
  security_group_id            = aws_security_group.this[each.value.to].id
  description                  = each.key
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.to_port
  referenced_security_group_id = aws_security_group.this[each.value.from].id
}

resource "aws_vpc_security_group_egress_rule" "between" {
  for_each                     = local.rules
  security_group_id            = aws_security_group.this[each.value.from].id
  description                  = each.key
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.to_port
  referenced_security_group_id = aws_security_group.this[each.value.to].id
}

resource "aws_vpc_security_group_ingress_rule" "into" {
  for_each          = local.into
  security_group_id = aws_security_group.this[each.value.to].id
  description       = each.key
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  cidr_ipv4         = each.value.cidr
}

resource "aws_vpc_security_group_egress_rule" "out" {
  for_each          = local.out
  security_group_id = aws_security_group.this[each.key].id
  description       = "services of tenants"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_egress_rule" "out_http" {
  for_each          = local.out_http
  security_group_id = aws_security_group.this[each.key].id
  description       = "services of tenants without TLS"
  ip_protocol       = "tcp"
  from_port         = 80
  to_port           = 80
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_egress_rule" "out_allow" {
  for_each          = local.out_allow
  security_group_id = aws_security_group.this[each.value.role].id
  description       = "networks that URLs of tenants may reach"
  ip_protocol       = "tcp"
  from_port         = 0
  to_port           = 65535
  cidr_ipv4         = strcontains(each.value.network, ":") ? null : each.value.network
  cidr_ipv6         = strcontains(each.value.network, ":") ? each.value.network : null
}

resource "aws_vpc_security_group_egress_rule" "mail" {
  for_each          = toset(var.smtp_port == null ? [] : [tostring(var.smtp_port)])
  security_group_id = aws_security_group.this["control"].id
  description       = "mail server"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_egress_rule" "alerts" {
  for_each          = local.alert_ports
  security_group_id = aws_security_group.this["telemetry"].id
  description       = "Alertmanager"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
  cidr_ipv4         = var.alertmanager.cidr
}

resource "aws_vpc_security_group_egress_rule" "traces" {
  for_each          = local.trace_ports
  security_group_id = aws_security_group.this["telemetry"].id
  description       = "store of traces and log lines"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.key)
  to_port           = tonumber(each.key)
  cidr_ipv4         = var.cidr
}

resource "aws_vpc_security_group_egress_rule" "services" {
  for_each          = local.machines
  security_group_id = aws_security_group.this[each.key].id
  description       = "AWS services inside the network"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.cidr
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  for_each          = local.machines
  security_group_id = aws_security_group.this[each.key].id
  description       = "S3"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = var.s3_prefix_list_id
}
