data "aws_partition" "here" {}
data "aws_region" "here" {}
data "aws_caller_identity" "here" {}

module "machine" {
  source    = "../machine"
  name      = var.machine.name
  role      = var.machine.role
  boot      = var.machine.boot
  artifacts = var.machine.artifacts
  files     = var.machine.files
  owners    = var.machine.owners
  users     = var.machine.users
  units     = var.machine.units
  statements = concat(var.machine.statements, local.is_judged ? [] : [{
    sid       = "SaysThatItServes"
    actions   = ["autoscaling:CompleteLifecycleAction"]
    resources = ["${local.groups}:autoScalingGroup:*:autoScalingGroupName/${local.name}"]
  }])
  ready = local.is_judged ? null : { group = local.name, hook = local.hook, url = var.health_url }
}

data "aws_default_tags" "all" {}

locals {
  name = "${var.machine.name}-${var.machine.role}"
  hook = "serves"
  # A region in another AWS region may have the same name.
  groups = "arn:${data.aws_partition.here.partition}:autoscaling:${data.aws_region.here.name}:${data.aws_caller_identity.here.account_id}"
  # By a load balancer. EC2's own checks see a machine whose program never starts as healthy.
  is_judged = length(var.target_group_arns) > 0
  tags = merge(data.aws_default_tags.all.tags, {
    Name              = local.name
    "millrace-region" = var.machine.name
    "millrace-role"   = var.machine.role
  })
}

resource "aws_launch_template" "this" {
  name                   = local.name
  image_id               = var.ami_id
  instance_type          = var.instance_type
  user_data              = module.machine.user_data_base64
  update_default_version = true
  ebs_optimized          = true
  vpc_security_group_ids = [var.security_group_id]

  iam_instance_profile { name = module.machine.instance_profile }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_size           = 20
      volume_type           = "gp3"
      encrypted             = true
      kms_key_id            = var.kms_key_arn
      delete_on_termination = true
    }
  }

  monitoring { enabled = true }

  dynamic "tag_specifications" {
    for_each = ["instance", "volume"]
    content {
      resource_type = tag_specifications.value
      tags          = local.tags
    }
  }
}

resource "aws_autoscaling_group" "this" {
  name                      = local.name
  min_size                  = var.size.min
  max_size                  = var.size.max
  vpc_zone_identifier       = var.subnet_ids
  target_group_arns         = var.target_group_arns
  health_check_type         = local.is_judged ? "ELB" : "EC2"
  health_check_grace_period = var.warmup_s
  default_instance_warmup   = var.warmup_s
  # The secrets may be stored after the machines start, so the machines are not waited for.
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }

  # A new machine counts when its program serves. Otherwise it is ended, so an upgrade to a program or a setting that does not
  # work stops at its first machine.
  dynamic "initial_lifecycle_hook" {
    for_each = local.is_judged ? [] : [local.hook]
    content {
      name                 = initial_lifecycle_hook.value
      lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
      heartbeat_timeout    = 1800
      default_result       = "ABANDON"
    }
  }

  # A new version of anything replaces machine after machine; each one drains when it is stopped.
  instance_refresh {
    strategy = "Rolling"
    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 110
      instance_warmup        = var.warmup_s
      auto_rollback          = true
    }
  }

  dynamic "tag" {
    for_each = local.tags
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }
}

resource "aws_autoscaling_policy" "cpu" {
  name                   = "${local.name}-cpu"
  autoscaling_group_name = aws_autoscaling_group.this.name
  policy_type            = "TargetTrackingScaling"
  target_tracking_configuration {
    target_value = var.cpu_target
    # Machines with connections are taken away by a person, who sees the load of a whole week.
    disable_scale_in = true
    predefined_metric_specification { predefined_metric_type = "ASGAverageCPUUtilization" }
  }
}
