# The smallest region that keeps its data when a machine is lost, for trials and small fleets.
provider "aws" {
  region = var.aws_region
  default_tags {
    tags = { project = "millrace", environment = "small" }
  }
}

module "region" {
  source             = "../../modules/region"
  name               = "millrace-small"
  domain             = var.domain
  zone_id            = var.zone_id
  ami_id             = var.ami_id
  artifacts          = var.artifacts
  availability_zones = ["${var.aws_region}a", "${var.aws_region}b", "${var.aws_region}c"]
  is_protected       = var.is_protected
  has_secret_key     = true
  alertmanager       = var.alertmanager
  runbooks_url       = var.runbooks_url
  aws_endpoint       = var.aws_endpoint
  edge_settings      = var.edge_settings
  control_settings   = var.control_settings
  edge_ports         = var.edge_ports

  load = {
    connections               = 20000
    messages_per_second       = 5000
    durable_writes_per_second = 1000
    stored_gib                = 50
  }
  machines = {
    gateway      = { type = "t3.medium", cores = 2 }
    edge         = { type = "t3.large", cores = 2 }
    foundationdb = { type = "t3.xlarge", cores = 4 }
    nats         = { type = "t3.small", cores = 2 }
    control      = { type = "t3.medium", cores = 2 }
    telemetry    = { type = "t3.small", cores = 2 }
  }
  # t3.medium has 4 GiB.
  gateway      = { connections_max = 50000, heap_gib = 3 }
  counts       = { gateway = 2, edge = 2, foundationdb = 3, nats = 3, control = 1 }
  nat_gateways = "one"
}
