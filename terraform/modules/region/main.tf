module "capacity" {
  source                    = "../capacity"
  connections               = var.load.connections
  messages_per_second       = var.load.messages_per_second
  durable_writes_per_second = var.load.durable_writes_per_second
  stored_gib                = var.load.stored_gib
  gateway_connections_max   = var.gateway.connections_max
  copies                    = length(var.availability_zones) >= 3 ? 3 : 2
  zones                     = length(var.availability_zones)
  cores = {
    gateway      = var.machines.gateway.cores
    edge         = var.machines.edge.cores
    foundationdb = var.machines.foundationdb.cores
  }
  # Beside the storage processes a machine runs one with a log and one without data.
  foundationdb_processes = local.storage_processes + 2
}

locals {
  storage_processes = coalesce(var.foundationdb.storage_processes, min(8, max(2, var.machines.foundationdb.cores - 2)))

  gateways = coalesce(var.counts.gateway, module.capacity.gateway_count)
  edges    = coalesce(var.counts.edge, module.capacity.edge_count)
  fdbs     = coalesce(var.counts.foundationdb, module.capacity.foundationdb_count)

  packages = { for name in ["millrace", "foundationdb_clients", "foundationdb_server"] : name => merge(var.artifacts[name], { path = null }) }
  programs = { for name, program in { nats_server = "nats-server", envoy = "envoy", prometheus = "prometheus", node_exporter = "node_exporter", otelcol = "otelcol" } : name =>
  merge(var.artifacts[name], { path = "/usr/local/bin/${program}" }) if var.artifacts[name] != null }
  everywhere = concat([for artifact in var.artifacts.everywhere : merge(artifact, { path = null })], [local.programs.node_exporter])

  millrace = concat(local.everywhere, [local.packages.foundationdb_clients, local.packages.millrace])
  database = concat(local.everywhere, [local.packages.foundationdb_clients, local.packages.foundationdb_server])

  boot = {
    for role, secret in module.secrets.secrets : role => {
      bucket      = module.buckets.artifacts.id
      bucket_arn  = module.buckets.artifacts.arn
      kms_key_arn = module.secrets.kms_key_arn
      endpoint    = var.aws_endpoint
      secret_name = secret.name
      secret_arn  = secret.arn
    }
  }

  # Every process on the store needs the same file.
  secret_key = var.has_secret_key ? { secret_key_file = "/etc/millrace/secrets/secret-key" } : {}

  # Prometheus reads the metrics, so pods send none.
  has_collector = var.artifacts.otelcol != null
  otlp          = { for name, value in { otlp_endpoint = "http://${module.telemetry.address}:4318", otlp_interval_s = 0 } : name => value if local.has_collector }

  # The program's own defaults.
  smtp_ports = { starttls = 587, tls = 465, off = 25 }
  smtp_port = try(var.control_settings.smtp_host, null) == null ? null : try(
    tonumber(var.control_settings.smtp_port), local.smtp_ports[try(var.control_settings.smtp_tls, "starttls")],
  )

  # As the programs read these settings: outgoing_allow is a list, or text with commas.
  own_settings  = { edge = var.edge_settings, control = var.control_settings }
  outgoing_http = toset([for role, settings in local.own_settings : role if try(tobool(settings.outgoing_http), false)])
  allowed = { for role, settings in local.own_settings : role => try(
    [for network in settings.outgoing_allow : tostring(network)],
    [for network in split(",", settings.outgoing_allow) : trimspace(network)],
    [],
  ) }
  # A security group takes no address without its length.
  outgoing_allow = { for role, networks in local.allowed : role => toset([
    for network in networks : strcontains(network, "/") ? network : "${network}/${strcontains(network, ":") ? 128 : 32}"
  ]) }

  traces_port = var.traces_to == null ? null : tonumber(try(regex(":([0-9]+)$", var.traces_to)[0], startswith(var.traces_to, "https:") ? 443 : 80))

  network = {
    vpc_id             = module.network.vpc_id
    cidr               = module.network.cidr
    public_subnet_ids  = module.network.public_subnet_ids
    private_subnet_ids = module.network.private_subnet_ids
    private_subnets    = module.network.private_subnets
  }
  store = {
    cluster_file = module.foundationdb.cluster_file
    nats_urls    = module.nats.urls
  }
}

check "machines_are_current" {
  assert {
    condition     = length(module.foundationdb.outdated) + length(module.nats.outdated) == 0
    error_message = "Another type, or an older image or user data: ${join(", ", concat(module.foundationdb.outdated, module.nats.outdated))}. Replace these machines one after another; terraform/README.md says how."
  }
}

check "somebody_hears_of_alerts" {
  assert {
    condition     = var.alertmanager != null || !var.is_protected
    error_message = "No alert reaches a person: alertmanager is null. terraform/README.md says how to name yours."
  }
}

module "secrets" {
  source        = "../secrets"
  name          = var.name
  recovery_days = var.is_protected ? 30 : 0
}

module "buckets" {
  source              = "../buckets"
  name                = var.name
  kms_key_arn         = module.secrets.kms_key_arn
  delete_with_content = !var.is_protected
}

module "network" {
  source             = "../network"
  name               = var.name
  cidr               = var.cidr
  availability_zones = var.availability_zones
  nat_gateways       = var.nat_gateways
  logs_bucket_arn    = module.buckets.logs.arn
}

module "access" {
  source                 = "../access"
  name                   = var.name
  vpc_id                 = module.network.vpc_id
  cidr                   = module.network.cidr
  s3_prefix_list_id      = module.network.s3_prefix_list_id
  edge_ports             = var.edge_ports
  foundationdb_last_port = module.foundationdb.last_port
  devices                = var.allowed_cidrs.devices
  people                 = var.allowed_cidrs.people
  has_way_out            = var.nat_gateways != "none"
  has_collector          = local.has_collector
  smtp_port              = local.smtp_port
  outgoing_http          = local.outgoing_http
  outgoing_allow         = local.outgoing_allow
  alertmanager           = var.alertmanager
  traces_port            = local.traces_port
}

module "foundationdb" {
  security_group_id = module.access.security_group_ids["foundationdb"]
  source            = "../foundationdb"
  name              = var.name
  network           = local.network
  boot              = local.boot["foundationdb"]
  artifacts         = local.database
  ami_id            = var.ami_id
  kms_key_arn       = module.secrets.kms_key_arn
  instance_type     = var.machines.foundationdb.type
  machine_count     = local.fdbs
  redundancy        = var.foundationdb.redundancy
  excluded          = var.foundationdb.excluded
  storage_processes = local.storage_processes
  memory_gib        = var.foundationdb.memory_gib
  log_disk          = var.log_disk
  storage_disk      = merge(var.storage_disk, { size_gib = coalesce(var.storage_disk.size_gib, module.capacity.storage_disk_gib) })
  backups           = module.buckets.backups
  backup_days       = var.backup_days
  is_protected      = var.is_protected
}

module "nats" {
  security_group_id = module.access.security_group_ids["nats"]
  source            = "../nats"
  name              = var.name
  network           = local.network
  boot              = local.boot["nats"]
  artifacts         = concat(local.everywhere, [local.programs.nats_server])
  ami_id            = var.ami_id
  kms_key_arn       = module.secrets.kms_key_arn
  instance_type     = var.machines.nats.type
  machine_count     = var.counts.nats
}

module "edge" {
  security_group_id = module.access.security_group_ids["edge"]
  source            = "../edge"
  name              = var.name
  network           = local.network
  boot              = local.boot["edge"]
  artifacts         = local.millrace
  ami_id            = var.ami_id
  kms_key_arn       = module.secrets.kms_key_arn
  instance_type     = var.machines.edge.type
  size              = { min = local.edges, max = local.edges * 2 }
  store             = local.store
  settings          = merge(local.secret_key, local.otlp, var.edge_settings)
  ports             = var.edge_ports
  gateway_cidrs     = [for subnet in module.network.private_subnets : subnet.cidr]
  server_reference  = "${var.domain}:8883"
  domain            = var.domain
  console_url       = module.dns_certificates.console_url
}

module "gateway" {
  security_group_id          = module.access.security_group_ids["gateway"]
  balancer_security_group_id = module.access.security_group_ids["gateway-balancer"]
  source                     = "../gateway"
  name                       = var.name
  network                    = local.network
  boot                       = local.boot["gateway"]
  artifacts                  = concat(local.everywhere, [local.programs.envoy])
  ami_id                     = var.ami_id
  kms_key_arn                = module.secrets.kms_key_arn
  instance_type              = var.machines.gateway.type
  size                       = { min = local.gateways, max = local.gateways * 2 }
  connections_max            = var.gateway.connections_max
  heap_gib                   = var.gateway.heap_gib
  drain_s                    = var.gateway.drain_s
  ports                      = module.edge.ports
  logs_bucket                = module.buckets.logs.id
  is_protected               = var.is_protected
}

module "control" {
  security_group_id          = module.access.security_group_ids["control"]
  balancer_security_group_id = module.access.security_group_ids["control-balancer"]
  source                     = "../control"
  name                       = var.name
  network                    = local.network
  boot                       = local.boot["control"]
  artifacts                  = local.millrace
  ami_id                     = var.ami_id
  kms_key_arn                = module.secrets.kms_key_arn
  instance_type              = var.machines.control.type
  size                       = { min = var.counts.control, max = var.counts.control * 2 }
  store                      = local.store
  settings                   = merge(local.secret_key, local.otlp, var.control_settings)
  certificate_arn            = module.dns_certificates.certificate_arn
  public_url                 = module.dns_certificates.console_url
  domain                     = var.domain
  logs_bucket                = module.buckets.logs.id
  is_protected               = var.is_protected
}

module "telemetry" {
  security_group_id = module.access.security_group_ids["telemetry"]
  source            = "../telemetry"
  name              = var.name
  network           = local.network
  boot              = { for name, value in local.boot["edge"] : name => value if !startswith(name, "secret") }
  artifacts         = concat(local.everywhere, [local.programs.prometheus], local.has_collector ? [local.programs.otelcol] : [])
  ami_id            = var.ami_id
  kms_key_arn       = module.secrets.kms_key_arn
  instance_type     = var.machines.telemetry.type
  disk_gib          = var.telemetry.disk_gib
  retention         = var.telemetry.retention
  targets = concat(
    [for port in var.edge_ports : { role = "edge", port = port.http + 10, path = "/metrics", job = "millrace" }],
    [
      { role = "control", port = 8090, path = "/metrics", job = "millrace" },
      { role = "gateway", port = 9902, path = "/stats/prometheus", job = "envoy" },
    ],
    [for role in ["gateway", "edge", "control", "foundationdb", "nats", "telemetry"] : { role = role, port = 9100, path = "/metrics", job = "host" }],
  )
  machines = {
    gateway      = local.gateways, edge = local.edges, control = var.counts.control
    foundationdb = local.fdbs, nats = var.counts.nats, telemetry = 1
  }
  nats_addresses       = module.nats.addresses
  foundationdb_address = module.foundationdb.addresses[0]
  collector            = local.has_collector ? { export_to = var.traces_to } : null
  alertmanager         = var.alertmanager
  runbooks_url         = var.runbooks_url
}

module "dns_certificates" {
  source  = "../dns-certificates"
  domain  = var.domain
  zone_id = var.zone_id
  gateway = { dns_name = module.gateway.dns_name, zone_id = module.gateway.zone_id }
  control = { dns_name = module.control.dns_name, zone_id = module.control.zone_id }
}
