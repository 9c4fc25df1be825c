data "aws_caller_identity" "here" {}

locals {
  buckets = {
    artifacts = { key = var.kms_key_arn, expire_days = null }
    # fdbbackup removes old backups. A rule by age would also remove the object that says that the backup exists.
    backups = { key = var.kms_key_arn, expire_days = null }
    # Load balancers can write to buckets with S3's own key only.
    logs = { key = null, expire_days = 90 }
  }
}

resource "aws_s3_bucket" "this" {
  for_each      = local.buckets
  bucket        = "${var.name}-${each.key}-${data.aws_caller_identity.here.account_id}"
  force_destroy = var.delete_with_content
  tags          = { Name = "${var.name}-${each.key}" }
}

resource "aws_s3_bucket_public_access_block" "this" {
  for_each                = aws_s3_bucket.this
  bucket                  = each.value.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  rule { object_ownership = "BucketOwnerEnforced" }
}

resource "aws_s3_bucket_versioning" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  versioning_configuration { status = "Enabled" }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  for_each = local.buckets
  bucket   = aws_s3_bucket.this[each.key].id
  rule {
    bucket_key_enabled = each.value.key != null
    apply_server_side_encryption_by_default {
      sse_algorithm     = each.value.key == null ? "AES256" : "aws:kms"
      kms_master_key_id = each.value.key
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  for_each = local.buckets
  bucket   = aws_s3_bucket.this[each.key].id

  rule {
    id     = "unfinished uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload { days_after_initiation = 2 }
    noncurrent_version_expiration { noncurrent_days = 30 }
  }

  # A deleted object leaves a marker, which stays behind its last version. A rule by age removes markers, too.
  dynamic "rule" {
    for_each = each.value.expire_days == null ? [1] : []
    content {
      id     = "markers of deleted objects"
      status = "Enabled"
      filter {}
      expiration { expired_object_delete_marker = true }
    }
  }

  dynamic "rule" {
    for_each = each.value.expire_days == null ? [] : [each.value.expire_days]
    content {
      id     = "old objects"
      status = "Enabled"
      filter {}
      expiration { days = rule.value }
    }
  }
}

data "aws_iam_policy_document" "bucket" {
  for_each = local.buckets

  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.this[each.key].arn, "${aws_s3_bucket.this[each.key].arn}/*"]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }

  dynamic "statement" {
    for_each = each.key == "logs" ? [1] : []
    content {
      sid       = "LoadBalancersAndFlowLogs"
      actions   = ["s3:PutObject"]
      resources = ["${aws_s3_bucket.this[each.key].arn}/*"]
      principals {
        type        = "Service"
        identifiers = ["logdelivery.elasticloadbalancing.amazonaws.com", "delivery.logs.amazonaws.com"]
      }
      condition {
        test     = "StringEquals"
        variable = "aws:SourceAccount"
        values   = [data.aws_caller_identity.here.account_id]
      }
    }
  }

  dynamic "statement" {
    for_each = each.key == "logs" ? [1] : []
    content {
      sid       = "FlowLogsLookAtTheBucket"
      actions   = ["s3:GetBucketAcl", "s3:ListBucket"]
      resources = [aws_s3_bucket.this[each.key].arn]
      principals {
        type        = "Service"
        identifiers = ["delivery.logs.amazonaws.com"]
      }
      condition {
        test     = "StringEquals"
        variable = "aws:SourceAccount"
        values   = [data.aws_caller_identity.here.account_id]
      }
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  for_each   = local.buckets
  bucket     = aws_s3_bucket.this[each.key].id
  policy     = data.aws_iam_policy_document.bucket[each.key].json
  depends_on = [aws_s3_bucket_public_access_block.this]
}
