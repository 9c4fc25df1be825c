# Two groups with many rules, as modules/access makes them: enough for an apply to be interrupted while it makes some.
provider "aws" {
  default_tags {
    tags = { project = "millrace" }
  }
}

terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = { source = "hashicorp/aws", version = "~> 5.100" }
  }
}

resource "aws_vpc" "this" {
  cidr_block = "10.40.0.0/16"
}

resource "aws_security_group" "this" {
  for_each = toset(["edge", "nats"])
  name     = each.key
  vpc_id   = aws_vpc.this.id
}

resource "aws_vpc_security_group_ingress_rule" "between" {
  for_each                     = { for number in range(60) : tostring(number) => 4222 + number }
  security_group_id            = aws_security_group.this["nats"].id
  referenced_security_group_id = aws_security_group.this["edge"].id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
}
