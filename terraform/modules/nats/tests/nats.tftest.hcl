# A plan must not replace, stop or reconfigure all machines of a kind at once. The provider's schema without its services.
mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
}

variables {
  name              = "millrace-eu"
  ami_id            = "ami-0123456789abcdef0"
  instance_type     = "c7i.large"
  machine_count     = 3
  kms_key_arn       = "arn:aws:kms:eu-central-1:123456789012:key/1"
  security_group_id = "sg-1"
  artifacts         = []
  boot              = { bucket = "programs", bucket_arn = "arn:aws:s3:::programs", kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/1" }
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

run "a_larger_type_stops_no_server_and_names_each" {
  command = plan
  variables {
    instance_type = "c7i.xlarge"
  }
  assert {
    condition     = alltrue([for machine in aws_instance.this : machine.instance_type == "c7i.large"])
    error_message = "the provider stops each machine to change its type, all at the same time"
  }
  assert {
    condition     = toset(output.outdated) == toset(["nats-1", "nats-2", "nats-3"])
    error_message = "nobody hears that machines have another type than Terraform: ${join(", ", output.outdated)}"
  }
}
