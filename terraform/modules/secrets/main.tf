data "aws_caller_identity" "here" {}
data "aws_partition" "here" {}
data "aws_region" "here" {}

locals {
  # One secret for each kind of machine, as terraform/secrets.sh names them, so that each reads its own only.
  roles = toset(["foundationdb", "nats", "edge", "gateway", "control"])
}

data "aws_iam_policy_document" "key" {
  statement {
    sid       = "Account"
    actions   = ["kms:*"]
    resources = ["*"]
    principals {
      type        = "AWS"
      identifiers = ["arn:${data.aws_partition.here.partition}:iam::${data.aws_caller_identity.here.account_id}:root"]
    }
  }

  # The pattern of AWS's own disk key. Auto Scaling has no role yet in an empty account, so none can be named.
  statement {
    sid       = "DisksOfThisAccount"
    actions   = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:CreateGrant", "kms:DescribeKey"]
    resources = ["*"]
    principals {
      type        = "AWS"
      identifiers = ["*"]
    }
    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["ec2.${data.aws_region.here.name}.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "kms:CallerAccount"
      values   = [data.aws_caller_identity.here.account_id]
    }
  }
}

resource "aws_kms_key" "this" {
  description             = "${var.name}: disks, secrets, artifacts, backups"
  enable_key_rotation     = true
  deletion_window_in_days = max(7, var.recovery_days)
  policy                  = data.aws_iam_policy_document.key.json
  tags                    = { Name = var.name }
}

resource "aws_kms_alias" "this" {
  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.this.key_id
}

# Without values: terraform/secrets.sh makes and stores them, so none is in Terraform's state.
resource "aws_secretsmanager_secret" "this" {
  for_each                = local.roles
  name                    = "${var.name}/${each.key}"
  description             = "Files that a ${each.key} machine of ${var.name} writes at its start, as JSON"
  kms_key_id              = aws_kms_key.this.arn
  recovery_window_in_days = var.recovery_days
  tags                    = { Name = "${var.name}-${each.key}" }
}
