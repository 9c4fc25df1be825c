data "aws_region" "here" {}

locals {
  full_name = "${var.name}-${var.role}"
}

# -- permissions

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "this" {
  statement {
    sid       = "Programs"
    actions   = ["s3:GetObject"]
    resources = [for artifact in var.artifacts : "${var.boot.bucket_arn}/${artifact.key}"]
  }

  dynamic "statement" {
    for_each = var.boot.secret_name == null ? [] : [1]
    content {
      sid       = "OwnSecret"
      actions   = ["secretsmanager:GetSecretValue"]
      resources = [var.boot.secret_arn]
    }
  }

  statement {
    sid       = "KeyOfProgramsAndSecret"
    actions   = ["kms:Decrypt"]
    resources = [var.boot.kms_key_arn]
    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = [for service in ["s3", "secretsmanager"] : "${service}.${data.aws_region.here.name}.amazonaws.com"]
    }
  }

  # Shells without SSH. IAM cannot limit these actions to a resource.
  statement {
    sid = "SessionManager"
    actions = [
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }

  dynamic "statement" {
    for_each = var.statements
    content {
      sid       = statement.value.sid
      actions   = statement.value.actions
      resources = statement.value.resources
      dynamic "condition" {
        for_each = statement.value.via == null ? [] : [statement.value.via]
        content {
          test     = "StringEquals"
          variable = "kms:ViaService"
          values   = ["${condition.value}.${data.aws_region.here.name}.amazonaws.com"]
        }
      }
    }
  }
}

resource "aws_iam_role" "this" {
  name               = "${local.full_name}-${data.aws_region.here.name}"
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = { Name = local.full_name }
}

resource "aws_iam_role_policy" "this" {
  name   = "machine"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.this.json
}

resource "aws_iam_instance_profile" "this" {
  name = aws_iam_role.this.name
  role = aws_iam_role.this.name
  tags = { Name = local.full_name }
}

# -- first start

locals {
  boot = {
    region    = data.aws_region.here.name
    endpoint  = var.boot.endpoint
    bucket    = var.boot.bucket
    artifacts = var.artifacts
    users     = concat(["node-exporter"], var.users)
    owners    = var.owners
    disks     = var.disks
    units     = concat(["node-exporter.service"], var.units)
    ready     = var.ready
    secret = var.boot.secret_name == null ? null : {
      name      = var.boot.secret_name
      owner     = var.boot.secret_owner
      directory = var.boot.secret_folder
    }
  }

  # Without comments and the functions' documentation: user data is 16 KiB at most.
  programs = { for name in ["aws.py", "boot.py"] : name => replace(
    replace(file("${path.module}/boot/${name}"), "/(?m)^ *#[^!].*\n/", ""), "/(?ms)^ +\"\"\".*?\"\"\"\n/", ""
  ) }

  units = { for name in ["node-exporter.service", "millrace-boot.service"] : "/etc/systemd/system/${name}" => {
    content = replace(file("${path.module}/files/${name}"), "/(?m)^#.*\n/", ""), mode = "0644"
  } }

  files = merge(var.files, local.units, {
    "/etc/millrace-boot.json"             = { content = jsonencode(local.boot), mode = "0644" }
    "/usr/local/lib/millrace-boot/aws.py" = { content = local.programs["aws.py"], mode = "0644" }
    "/usr/local/sbin/millrace-boot"       = { content = "#!/bin/sh\nexec python3 /usr/local/lib/millrace-boot/boot.py \"$@\"\n", mode = "0755" }
    "/usr/local/lib/millrace-boot/boot.py" = {
      content = local.programs["boot.py"], mode = "0755"
    }
  })

  cloud = {
    package_update  = false
    package_upgrade = false
    ssh_pwauth      = false
    write_files = [for path, file in local.files : {
      path = path, permissions = file.mode, content = file.content
    }]
    # cloud-init runs this once, also where it is interrupted.
    runcmd = [["systemctl", "enable", "--now", "--no-block", "millrace-boot.service"]]
  }

  # JSON is YAML, and nothing in it needs care with spaces.
  cloud_config = "#cloud-config\n${jsonencode(local.cloud)}"
}
