mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
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
  assert {
    condition     = contains(keys(aws_vpc_endpoint.interface), "autoscaling")
    error_message = "an edge machine cannot tell Auto Scaling that it serves, so Auto Scaling ends it"
  }
}

run "addresses_of_the_database_are_kept_free" {
  command = plan
  assert {
    condition = { for zone, kept in aws_ec2_subnet_cidr_reservation.fixed : zone => "${kept.reservation_type} ${kept.cidr_block}" } == {
      eu-central-1a = "explicit 10.40.0.0/24", eu-central-1b = "explicit 10.40.16.0/24", eu-central-1c = "explicit 10.40.32.0/24"
    }
    error_message = "another machine can get the address of a database machine that is replaced"
  }
}

run "keys_of_another_account_carry_nothing_out" {
  command = plan
  variables {
    nat_gateways = "none"
  }
  assert {
    condition = alltrue([
      for name in ["secretsmanager", "ec2", "ssm", "autoscaling"] :
      jsondecode(aws_vpc_endpoint.interface[name].policy).Statement[0].Condition.StringEquals["aws:PrincipalAccount"] == "123456789012"
    ])
    error_message = "an AWS service inside the network takes keys of another account"
  }
  assert {
    condition = alltrue([
      for name in ["aws:PrincipalAccount", "aws:ResourceAccount"] :
      jsondecode(aws_vpc_endpoint.s3.policy).Statement[0].Condition.StringEquals[name] == "123456789012"
    ])
    error_message = "S3 inside the network is for this account"
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

run "an_address_within_a_network_is_refused" {
  command = plan
  variables {
    cidr = "10.40.7.0/16"
  }
  expect_failures = [var.cidr]
}

run "one_zone" {
  command   = apply
  state_key = "one"
  variables {
    availability_zones = ["eu-central-1a"]
  }
}

run "machines_of_one_zone_do_not_move_to_three" {
  command         = plan
  state_key       = "one"
  expect_failures = [output.private_subnets]
}

run "three_zones" {
  command   = apply
  state_key = "three"
}

run "another_order_of_the_zones_moves_no_machine" {
  command   = plan
  state_key = "three"
  variables {
    availability_zones = ["eu-central-1b", "eu-central-1a", "eu-central-1c"]
  }
  expect_failures = [output.private_subnets]
}

run "other_addresses_replace_no_machine" {
  command   = plan
  state_key = "three"
  variables {
    cidr = "10.50.0.0/16"
  }
  expect_failures = [output.private_subnets]
}

run "another_way_out_is_no_other_layout" {
  command   = plan
  state_key = "three"
  variables {
    nat_gateways = "none"
  }
  assert {
    condition     = length(output.private_subnets) == 3
    error_message = "the network has three zones"
  }
}
