# Half a million devices in three zones. Any zone can be lost.
provider "aws" {
  region = var.aws_region
  default_tags {
    tags = { project = "millrace", environment = "production" }
  }
}

module "region" {
  source             = "../../modules/region"
  name               = "millrace-eu"
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

  load = {
    connections               = 500000
    messages_per_second       = 200000
    durable_writes_per_second = 40000
    stored_gib                = 500
  }
  counts   = { foundationdb = 6 }
  log_disk = { type = "io2", iops = 6000 }
}
