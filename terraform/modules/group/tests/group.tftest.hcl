mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
  mock_data "aws_default_tags" {
    defaults = { tags = {} }
  }
}

variables {
  ami_id            = "ami-0123456789abcdef0"
  instance_type     = "c7i.large"
  kms_key_arn       = "arn:aws:kms:eu-central-1:123456789012:key/1"
  subnet_ids        = ["subnet-1", "subnet-2", "subnet-3"]
  size              = { min = 3, max = 6 }
  security_group_id = "sg-1"
  health_url        = "http://127.0.0.1:8080/healthz"
  machine = {
    name      = "millrace-eu"
    role      = "edge"
    boot      = { bucket = "programs", bucket_arn = "arn:aws:s3:::programs", kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/1" }
    artifacts = []
    files     = {}
    units     = ["millrace.service"]
  }
}

run "an_upgrade_goes_on_only_when_the_new_machine_serves" {
  command = plan
  assert {
    condition = [for hook in aws_autoscaling_group.this.initial_lifecycle_hook : [hook.lifecycle_transition, hook.default_result]] == [
      ["autoscaling:EC2_INSTANCE_LAUNCHING", "ABANDON"]
    ]
    error_message = "EC2's checks call a machine healthy whose program never starts, so an upgrade would end all machines that work"
  }
  assert {
    condition     = strcontains(output.cloud_config, trim(jsonencode(jsonencode({ group = "millrace-eu-edge", hook = "serves", url = var.health_url })), "\""))
    error_message = "the machine does not say that it serves"
  }
}

run "a_load_balancer_judges_its_machines_itself" {
  command = plan
  variables {
    target_group_arns = ["arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/1"]
    health_url        = null
  }
  assert {
    condition     = aws_autoscaling_group.this.health_check_type == "ELB" && length(aws_autoscaling_group.this.initial_lifecycle_hook) == 0
    error_message = "a gateway cannot reach Auto Scaling, which would end each one after half an hour"
  }
}

run "a_group_that_nobody_judges_is_refused" {
  command = plan
  variables {
    health_url = null
  }
  expect_failures = [var.health_url]
}
