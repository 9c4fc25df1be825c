mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
}

variables {
  name               = "millrace-test"
  availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
  logs_bucket_arn    = "arn:aws:s3:::logs"
}

run "no_subnet_gives_public_addresses" {
  command = plan
  assert {
    condition     = alltrue([for subnet in concat(values(aws_subnet.public), values(aws_subnet.private)) : !subnet.map_public_ip_on_launch])
    error_message = "a machine must not get a public address"
  }
}

run "without_nat_the_machines_have_no_way_out" {
  command = plan
  variables {
    nat_gateways = "none"
  }
  assert {
    condition     = length(aws_route.nat) == 0 && length(aws_nat_gateway.this) == 0
    error_message = "nat_gateways = none must leave the private subnets without a route to the internet"
  }
}

run "two_zones_are_refused" {
  command = plan
  variables {
    availability_zones = ["eu-central-1a", "eu-central-1b"]
  }
  expect_failures = [var.availability_zones]
}

run "an_ipv6_network_is_refused" {
  command = plan
  variables {
    cidr = "fd00::/16"
  }
  expect_failures = [var.cidr]
}

run "a_small_network_is_refused" {
  command = plan
  variables {
    cidr = "10.0.0.0/24"
  }
  expect_failures = [var.cidr]
}
