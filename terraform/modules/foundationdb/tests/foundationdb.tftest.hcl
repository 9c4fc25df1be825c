# A plan must not replace, stop or reconfigure all machines of a kind at once. The provider's schema without its services.
mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_ec2_instance_type" {
    defaults = { memory_size = 65536 }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
}

variables {
  name              = "millrace-eu"
  ami_id            = "ami-0123456789abcdef0"
  instance_type     = "m7i.xlarge"
  machine_count     = 3
  kms_key_arn       = "arn:aws:kms:eu-central-1:123456789012:key/1"
  security_group_id = "sg-1"
  artifacts         = []
  boot              = { bucket = "programs", bucket_arn = "arn:aws:s3:::programs", kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/1" }
  backups           = { id = "backups", arn = "arn:aws:s3:::backups" }
  network = {
    vpc_id = "vpc-1"
    cidr   = "10.40.0.0/16"
    private_subnets = [
      { id = "subnet-1", zone = "eu-central-1a", cidr = "10.40.0.0/20" },
      { id = "subnet-2", zone = "eu-central-1b", cidr = "10.40.16.0/20" },
      { id = "subnet-3", zone = "eu-central-1c", cidr = "10.40.32.0/20" },
    ]
  }
}

run "three_machines" {
  command = apply
  assert {
    condition     = length(output.outdated) == 0
    error_message = "new machines are as they should be"
  }
}

run "a_larger_type_stops_no_machine_and_names_each" {
  command = plan
  variables {
    instance_type = "m7i.2xlarge"
  }
  assert {
    condition     = alltrue([for machine in aws_instance.this : machine.instance_type == "m7i.xlarge"])
    error_message = "the provider stops each machine to change its type, all at the same time: the store would be gone for minutes"
  }
  assert {
    condition     = toset(output.outdated) == toset(["foundationdb-1", "foundationdb-2", "foundationdb-3"])
    error_message = "nobody hears that machines have another type than Terraform: ${join(", ", output.outdated)}"
  }
}

run "more_machines_change_no_cluster_file_and_ask_for_more_copies" {
  command = plan
  variables {
    machine_count = 6
  }
  assert {
    condition     = output.cluster_file == run.three_machines.cluster_file && length(regexall(":tls", output.cluster_file)) == 3
    error_message = "machines and pods would look for coordinators that nobody has configured: ${output.cluster_file}"
  }
  assert {
    condition     = output.redundancy == "three_data_hall" && strcontains(output.cloud_config["foundationdb-1"], "configure three_data_hall")
    error_message = "six machines in three zones keep a copy in each zone: ${output.redundancy}"
  }
  assert {
    condition = [
      for name in ["foundationdb-1", "foundationdb-2", "foundationdb-3"] : name
      if aws_instance.this[name].user_data_base64 != module.machine[name].user_data_base64
    ] == ["foundationdb-1"]
    error_message = "one machine changes the redundancy, and only that one must be replaced"
  }
}

run "nine_machines" {
  command   = apply
  state_key = "nine"
  variables {
    machine_count = 9
  }
}

run "machines_that_came_later_are_not_taken_away" {
  command = plan
  override_data {
    target = data.aws_instances.present
    values = { private_ips = ["10.40.0.10", "10.40.16.11", "10.40.32.12", "10.40.0.13", "10.40.16.14", "10.40.32.15"] }
  }
  expect_failures = [output.addresses]
}

run "machines_without_data_may_go" {
  command = plan
  variables {
    excluded = ["10.40.0.13", "10.40.16.14", "10.40.32.15"]
  }
  override_data {
    target = data.aws_instances.present
    values = { private_ips = ["10.40.0.10", "10.40.16.11", "10.40.32.12", "10.40.0.13", "10.40.16.14", "10.40.32.15"] }
  }
  assert {
    condition     = length(output.addresses) == 3
    error_message = "machines whose data was moved cannot be removed"
  }
}

run "a_machine_that_is_asked_for_is_not_excluded" {
  command = plan
  variables {
    machine_count = 6
    excluded      = ["10.40.0.13"]
  }
  expect_failures = [output.addresses]
}

run "other_zones_move_no_machine" {
  command = plan
  override_data {
    target = data.aws_instances.present
    values = { private_ips = ["10.40.0.10", "10.40.0.11", "10.40.0.12"] }
  }
  expect_failures = [output.addresses]
}

run "coordinators_are_not_taken_away" {
  command   = plan
  state_key = "nine"
  variables {
    machine_count = 6
  }
  expect_failures = [output.cluster_file]
}

run "more_processes_than_the_memory_has_room_for_are_refused" {
  command = plan
  override_data {
    target = data.aws_ec2_instance_type.this
    values = { memory_size = 8192 }
  }
  expect_failures = [output.memory_gib]
}
