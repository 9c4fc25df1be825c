# Two regions that share nothing: each broker lives in one of them, and devices know its name.
provider "aws" {
  region = "eu-central-1"
  default_tags {
    tags = { project = "millrace", environment = "production" }
  }
}

provider "aws" {
  alias  = "us"
  region = "us-east-1"
  default_tags {
    tags = { project = "millrace", environment = "production" }
  }
}

locals {
  load = {
    connections               = 200000
    messages_per_second       = 50000
    durable_writes_per_second = 10000
  }
}

module "eu" {
  source             = "../../modules/region"
  name               = "millrace-eu"
  domain             = "eu.${var.domain}"
  zone_id            = var.zone_id
  cidr               = "10.40.0.0/16"
  ami_id             = var.ami_ids.eu
  artifacts          = var.artifacts
  availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
  is_protected       = var.is_protected
  has_secret_key     = true
  alertmanager       = var.alertmanager
  runbooks_url       = var.runbooks_url
  load               = local.load
}

module "us" {
  source             = "../../modules/region"
  providers          = { aws = aws.us }
  name               = "millrace-us"
  domain             = "us.${var.domain}"
  zone_id            = var.zone_id
  cidr               = "10.41.0.0/16"
  ami_id             = var.ami_ids.us
  artifacts          = var.artifacts
  availability_zones = ["us-east-1a", "us-east-1b", "us-east-1c"]
  is_protected       = var.is_protected
  has_secret_key     = true
  alertmanager       = var.alertmanager
  runbooks_url       = var.runbooks_url
  load               = local.load
}
